"""Parse the probe's document, in which a host describes itself. A missing or absurd value counts as unknown."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.hosts import topology
from agents.hosts.accelerators import accelerator_type
from agents.hosts.engine_checks import EngineFacts, read_engine, usable_runtimes, with_known
from agents.infra.text import clean_text
from agents.infra.untrusted import boolean, mapping, mappings, whole_number

MAX_DOCUMENT = 1 << 20
MAX_GPUS = 64
MAX_MOUNTS = 64
MAX_RUNTIMES = 20
MAX_INTERFACES = 64
# 10 Tbit/s: more than any card of these years.
MAX_MBIT = 10_000_000
MAX_NAME_ADDRESSES = 16
MAX_GROUPS = 64
MAX_CDI = 256
MAX_ID = 2**32 - 1


class InvalidProbe(ValueError):
    """The host's answer is not the probe's document."""


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    uuid: str
    model: str
    memory_mb: int

    @property
    def accelerator_type(self) -> str:
        return accelerator_type(self.model)


@dataclass(frozen=True, slots=True)
class UnusableCard:
    """A card that is or was there and cannot be used; `why` is mig, reset or lost. `uuid` is "" if it is not known."""

    index: int | None
    uuid: str
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    free_mb: int
    total_mb: int
    fstype: str
    local: bool
    survives_reboot: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of network storage, of a directory from elsewhere, or of something below one of these."""

    path: str
    fstype: str
    source: str
    network: bool
    root: str = "/"
    device: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """One address of a network interface. `mbit`: the speed of its card, or 0 where that is not known."""

    name: str
    address: str
    mbit: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """`ssh`: the host's end of the check's connection. `route`: its address on the way to others. `name`: what its own
    name resolves to there, or None if that is not known. `infiniband`: a port of such a card is up."""

    interfaces: tuple[Interface, ...]
    ssh: str
    route: str
    name: tuple[str, ...] | None
    infiniband: bool = False


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The probe's document (agents/README.md, mode `probe`)."""

    python: str
    boot_id: str
    wall: float
    hostname: str
    user: str
    uid: int | None
    home: str
    home_mode: int | None
    groups: tuple[str, ...]
    cpus: int
    memory_mb: int
    disk: Disk
    shared: tuple[Mount, ...] | None
    gpus: tuple[Device, ...]
    gpus_out: tuple[UnusableCard, ...]
    gpu_error: str
    topology: Mapping[str, Any]
    gpu_unseen: int
    nvidia_smi: bool
    runtimes: tuple[str, ...]
    """Those by which jobs may run; `installed` has all that were found."""
    installed: tuple[str, ...]
    engine: EngineFacts | None
    """Podman's."""
    docker: EngineFacts | None
    apptainer: EngineFacts | None
    containment: str
    containment_text: str
    memory_limits: bool
    pid_namespace: bool | None
    pid_namespace_why: str
    kill_user_processes: bool | None
    linger: bool | None
    nofile: int
    inotify: bool
    max_sessions: int | None
    max_startups: str
    network: Network | None
    ptrace_scope: int | None
    """0 to 3, as Yama has it; None where the runner cannot tell."""
    cdi: tuple[str, ...] | None
    """The GPUs that CDI specs name; None when the runner is too old to report them."""
    gpu_nodes: bool
    """Whether the device nodes of all GPUs are known."""
    nvidia_hook: bool
    """Whether Docker has the hook by which it gives GPUs by their names."""


def parse(raw: bytes, before: Mapping[str, Any] | None = None) -> HostFacts:
    """Parse the probe's one line. A login shell may have printed other lines before it.

    `before`: the facts of this host that are stored.
    """
    return _facts(_document(raw), before or {})


def _document(raw: bytes) -> Mapping[str, Any]:
    if len(raw) > MAX_DOCUMENT:
        raise InvalidProbe(f"the probe answered with {len(raw)} bytes")
    for line in reversed(raw.decode("utf-8", "replace").splitlines()):
        if not line.startswith("{"):
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("schema") == 1:
            return found
    raise InvalidProbe("no probe document in: " + clean_text(raw[-300:].decode("utf-8", "replace"), 300))


def _facts(d: Mapping[str, Any], before: Mapping[str, Any]) -> HostFacts:
    logout, sshd = mapping(d.get("logout")), mapping(d.get("sshd"))
    installed = _runtimes(d.get("runtimes"))
    engine = with_known(read_engine(d.get("podman")), before.get("engine"))
    docker = with_known(read_engine(d.get("docker")), before.get("docker"))
    apptainer = with_known(read_engine(d.get("apptainer")), before.get("apptainer"))
    return HostFacts(
        python=clean_text(d.get("python", ""), 40),
        boot_id=clean_text(d.get("boot_id", ""), 64),
        wall=_number(d.get("wall")),
        hostname=clean_text(d.get("hostname", ""), 255),
        user=clean_text(d.get("user", ""), 64),
        uid=whole_number(d.get("uid"), 0, MAX_ID),
        home=clean_text(d.get("home", ""), 500),
        home_mode=whole_number(d.get("home_mode"), 0, 0o7777),
        groups=_names(d.get("groups")),
        cpus=_count(d.get("cpus")),
        memory_mb=_count(d.get("memory_mb")),
        disk=_disk(mapping(d.get("disk"))),
        shared=_mounts(d.get("shared")),
        gpus=_devices(d.get("gpus")),
        gpus_out=_unusable_cards(d.get("gpus_out")),
        gpu_error=clean_text(d.get("gpu_error") or "", 1000),
        topology=topology.parse(str(d.get("gpu_topology") or "")),
        gpu_unseen=_count(d.get("gpu_unseen")),
        nvidia_smi=d.get("nvidia_smi") is True,
        runtimes=usable_runtimes(installed, engine, docker, apptainer),
        installed=installed,
        engine=engine,
        docker=docker,
        apptainer=apptainer,
        containment=clean_text(d.get("containment", "subreaper"), 16),
        containment_text=clean_text(d.get("containment_text", ""), 300),
        memory_limits=d.get("memory_limits") is True,
        pid_namespace=boolean(d.get("pid_namespace")),
        pid_namespace_why=clean_text(d.get("pid_namespace_why") or "", 300),
        kill_user_processes=boolean(logout.get("kill_user_processes")),
        linger=boolean(logout.get("linger")),
        nofile=_count(d.get("nofile")),
        inotify=d.get("inotify") is True,
        max_sessions=_count(sshd.get("max_sessions")) or None,
        max_startups=clean_text(sshd.get("max_startups") or "", 40),
        network=_network(d.get("network")),
        ptrace_scope=whole_number(d.get("ptrace_scope"), 0, 3),
        cdi=_cdi(d.get("cdi")),
        gpu_nodes=d.get("gpu_nodes") is True,
        nvidia_hook=d.get("nvidia_hook") is True,
    )


def _names(value: object) -> tuple[str, ...]:
    """Empty too when the runner is too old to report them."""
    return tuple(clean_text(one, 64) for one in value[:MAX_GROUPS]) if isinstance(value, list) else ()


def _network(value: object) -> Network | None:
    """None when the runner is too old to report it."""
    if not isinstance(value, dict):
        return None
    rows = [
        Interface(
            clean_text(row.get("name", ""), 64),
            _address(row.get("address")),
            whole_number(row.get("mbit"), 0, MAX_MBIT) or 0,
        )
        for row in mappings(value.get("interfaces"), MAX_INTERFACES)
    ]
    name = value.get("name")
    known = [_address(each) for each in name[:MAX_NAME_ADDRESSES]] if isinstance(name, list) else None
    return Network(
        interfaces=tuple(row for row in rows if row.address),
        ssh=_address(value.get("ssh")),
        route=_address(value.get("route")),
        name=None if known is None else tuple(filter(None, known)),
        infiniband=value.get("infiniband") is True,
    )


def _address(value: object) -> str:
    """An IP address in its usual form, or "" for anything else."""
    try:
        return str(ipaddress.ip_address(str(value).removeprefix("::ffff:")))
    except ValueError:
        return ""


def _mounts(value: object) -> tuple[Mount, ...] | None:
    """None when the runner is too old to report mounts."""
    if not isinstance(value, list):
        return None
    return tuple(
        Mount(
            path=clean_text(one.get("path", ""), 500),
            fstype=clean_text(one.get("fstype", ""), 40),
            source=clean_text(one.get("source", ""), 300),
            network=one.get("network") is True,
            root=clean_text(one.get("root") or "/", 500),
            device=clean_text(one.get("device") or "", 40),
        )
        for one in mappings(value, MAX_MOUNTS)
        if str(one.get("path", "")).startswith("/")
    )


def _disk(d: Mapping[str, Any]) -> Disk:
    return Disk(
        path=clean_text(d.get("path", ""), 500),
        free_mb=_count(d.get("free_mb")),
        total_mb=_count(d.get("total_mb")),
        fstype=clean_text(d.get("fstype", ""), 40),
        local=d.get("local") is True,
        survives_reboot=d.get("survives_reboot") is True,
        writable=d.get("writable") is True,
    )


def _cdi(value: object) -> tuple[str, ...] | None:
    return tuple(clean_text(one, 80) for one in value[:MAX_CDI]) if isinstance(value, list) else None


def _devices(found: object) -> tuple[Device, ...]:
    rows = mappings(found, MAX_GPUS)
    devices = {
        uuid: Device(
            _count(g.get("index")), uuid, clean_text(g.get("model", ""), 100), _count(g.get("memory_mb"))
        )
        for g in rows
        if (uuid := clean_text(g.get("uuid", ""), 80))
    }
    return tuple(devices.values())


def _unusable_cards(found: object) -> tuple[UnusableCard, ...]:
    rows = mappings(found, MAX_GPUS)
    return tuple(
        UnusableCard(
            index=None if g.get("index") is None else _count(g["index"]),
            uuid=clean_text(g.get("uuid", ""), 80),
            why=clean_text(g.get("why", ""), 16),
            text=clean_text(g.get("text", ""), 300),
        )
        for g in rows
    )


def _runtimes(found: object) -> tuple[str, ...]:
    rows = mappings(found, MAX_RUNTIMES)
    return tuple(clean_text(f"{r.get('name', '')} {r.get('version', '')}", 80) for r in rows)


def _count(value: object) -> int:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31
    return int(value) if good else 0  # type: ignore[call-overload]


def _number(value: object) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11
    return float(value) if good else 0.0  # type: ignore[arg-type]
