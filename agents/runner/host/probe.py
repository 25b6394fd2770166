"""Probe: what this host is, in one line of JSON. A value that cannot be found out is null, never an error."""

from __future__ import annotations

import grp
import json
import os
import platform
import pwd
import re
import resource
import shutil
import socket
import stat
import time
from typing import Any, Dict, List, NamedTuple, Set

from agents.runner.home import is_gpu
from agents.runner.host.cdi import cdi_names
from agents.runner.host.engine_probe import probe_engines
from agents.runner.host.gpus import gpu_minors, open_devices
from agents.runner.host.networks import interfaces, route_address
from agents.runner.linux import IN_MOVED_TO, Inotify, boot_id
from agents.runner.programs import Program, output_of
from agents.runner.runs.containment import containment_level, memory_limits_here
from agents.runner.runs.namespaces import why_no_namespace
from agents.runner.runtimes.docker_options import has_nvidia_hook

_NETWORK_DISKS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "ceph", "beegfs", "fhgfs", "afs", "9p", "virtiofs",
    "glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "quobyte", "gfs2", "ocfs2", "autofs", "fuse.sshfs",
    "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys",
    "fuse.rclone", "fuse.mfs", "fuse.quobyte", "fuse.seaweedfs", "fuse.mount-s3", "fuse.blobfuse", "fuse.blobfuse2",
}  # fmt: skip
# For these a root that is not / says nothing about other hosts.
_NO_DISKS = {
    "btrfs",
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "mqueue",
    "nsfs",
    "tmpfs",
    "devtmpfs",
    "ramfs",
}
_MEMORY_DISKS = {"tmpfs", "ramfs", "devtmpfs", "rootfs"}
_MAX_MOUNTS = 64
_MAX_INTERFACES = 64
_MAX_CDI = 256


def main() -> None:
    user = pwd.getpwuid(os.getuid())
    home = os.path.expanduser("~")
    level = containment_level()
    no_namespace = why_no_namespace()
    gpus, out, gpu_error = probe_gpus()
    inotify = Inotify()
    document = {
        "schema": 1,
        "python": platform.python_version(),
        "boot_id": boot_id(),
        "wall": time.time(),
        "hostname": socket.gethostname(),
        "user": user.pw_name,
        "uid": user.pw_uid,
        "home": home,
        "home_mode": mode_of(home),
        "groups": group_names(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "disk": probe_disk(home),
        "shared": probe_shared(),
        "gpus": gpus,
        "gpus_out": out,
        "gpu_error": gpu_error,
        "gpu_topology": probe_topology() if len(gpus) > 1 else "",
        "gpu_unseen": open_devices()[1] if gpus else 0,
        "nvidia_smi": shutil.which("nvidia-smi") is not None,
        "gpu_nodes": {gpu["uuid"] for gpu in gpus} <= gpu_minors().keys(),
        "nvidia_hook": has_nvidia_hook(),
        "cdi": sorted(cdi_names())[:_MAX_CDI] if gpus else [],
        "runtimes": probe_runtimes(),
        **probe_engines(),
        "containment": level,
        "pid_namespace": not no_namespace,
        "pid_namespace_why": no_namespace,
        "memory_limits": memory_limits_here(),
        "containment_text": (
            "a cgroup per run: a stop overlooks nothing that it started"
            if level == "cgroup"
            else "no delegated cgroup: processes are followed by kinship and by a mark in their environment"
        ),
        "logout": probe_logout(user.pw_name),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "nproc": _limit(resource.RLIMIT_NPROC),
        "inotify": inotify.fd >= 0 and inotify.watch(home, IN_MOVED_TO) >= 0,
        "sshd": probe_sshd("/etc/ssh"),
        "network": probe_network(),
        "ptrace_scope": probe_ptrace_scope(),
    }
    os.write(1, json.dumps(document).encode("ascii") + b"\n")


def mode_of(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def group_names() -> List[str]:
    """The groups of this login; a number for one without a name."""
    found = []
    for gid in sorted({os.getgid(), *os.getgroups()}):
        try:
            found.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            found.append(str(gid))
    return found[:64]


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else min(soft, 2**31 - 1)


_CARD = "index,uuid,name,memory.total"
# The fields in which a damaged card shows it; drivers of 2019 know no MIG.
_HEALTH = "utilization.gpu,mig.mode.current"


class Cards(NamedTuple):
    """The GPUs of the host. `out`: those on which nothing can be started, and why: mig, reset or lost."""

    gpus: List[Dict[str, Any]]
    out: List[Dict[str, Any]]
    error: str | None


def probe_gpus() -> Cards:
    if shutil.which("nvidia-smi") is None:
        return Cards([], [], None)
    status, text = 0, ""
    for fields in (_CARD + "," + _HEALTH, _CARD):
        status, text = output_of(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"])
        if "not a valid field" not in text:
            break
    if status != 0:
        return Cards([], [], text.strip()[:1000] or "nvidia-smi ended with status %d" % status)
    cards = Cards([], [], None)
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) in (4, 6) and parts[0].isdigit():
            known, why = is_gpu(parts[1]), trouble_of(parts)
            memory = int(parts[3]) if parts[3].isdigit() else 0
            card: Dict[str, Any] = {"index": int(parts[0]), "uuid": parts[1] if known else ""}
            card.update(model=parts[2] if known else "", memory_mb=memory)
            (cards.out if why else cards.gpus).append(dict(card, why=why) if why else card)
        elif line.startswith("Unable to determine the device handle"):
            cards.out.append({"index": None, "uuid": "", "why": "lost", "text": line.strip()[:300]})
    return cards


def trouble_of(parts: List[str]) -> str:
    """Why a card cannot be used; empty if it can. `N/A` and `Not Supported` are no trouble: many lack such a value."""
    values = " ".join(parts[3:]).lower()
    if "requires reset" in values:
        return "reset"
    if not is_gpu(parts[1]) or any(word in values for word in ("is lost", "unknown error", "err!")):
        return "lost"
    return "mig" if parts[5:] == ["Enabled"] else ""


def probe_topology() -> str:
    """How near the GPUs are to each other, as nvidia-smi prints it; the console parses the text."""
    status, text = output_of(["nvidia-smi", "topo", "-m"])
    return text[:65536] if status == 0 else ""


def probe_disk(home: str) -> Dict[str, Any]:
    found = os.statvfs(home)
    fstype = filesystem_type(home)
    return {
        "path": home,
        "free_mb": found.f_bavail * found.f_frsize >> 20,
        "total_mb": found.f_blocks * found.f_frsize >> 20,
        "fstype": fstype,
        "local": fstype not in _NETWORK_DISKS,
        "survives_reboot": fstype not in _MEMORY_DISKS,
        "writable": os.access(home, os.W_OK),
    }


class Mount(NamedTuple):
    """A line of mountinfo. `root`: which directory of the file system is mounted there, for a bind mount."""

    number: int
    parent: int
    device: str
    root: str
    point: str
    fstype: str
    source: str


def filesystem_type(path: str) -> str:
    """The type of the file system that holds `path`."""
    found = holder(os.path.realpath(path), mounts())
    return found.fstype if found else "unknown"


def holder(path: str, every: List[Mount]) -> Mount | None:
    """The mount that a path leads to, found as the kernel does: down from the root, into what was mounted last at
    each place."""
    numbers = {mount.number for mount in every}
    roots = [mount for mount in every if mount.point == "/" and mount.parent not in numbers - {mount.number}]
    at = roots[-1] if roots else None
    passed: Set[int] = set()
    while at is not None and at.number not in passed:
        passed.add(at.number)
        inside = [
            m for m in every if m.parent == at.number and m.number not in passed and _above(m.point, path)
        ]
        if not inside:
            return at
        nearest = min(len(mount.point) for mount in inside)
        at = [mount for mount in inside if len(mount.point) == nearest][-1]
    return at


def _above(point: str, path: str) -> bool:
    return (path.rstrip("/") + "/").startswith(point.rstrip("/") + "/")


def mounts() -> List[Mount]:
    """The mounts of this host. No mount is touched, so one that hangs holds nothing up."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return read_mounts(file.readlines())
    except OSError:
        return []


def read_mounts(lines: List[str]) -> List[Mount]:
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        # Blanks and newlines in names are octal numbers there.
        words = [
            re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)
            for word in before.split()[:5] + after.split()[:2]
        ]
        if len(words) == 7 and words[0].isdigit() and words[1].isdigit():
            found.append(Mount(int(words[0]), int(words[1]), *words[2:]))
    return found


def probe_shared(every: List[Mount] | None = None) -> List[Dict[str, Any]]:
    """Storage that other hosts may see too.

    That is: network file systems, directories that are mounted from elsewhere, and what is mounted below either. A
    mount that is hidden by another one is left out.
    """
    every = mounts() if every is None else every
    every = [mount for mount in every if holder(mount.point, every) is mount]
    shared = [mount for mount in every if _from_network(mount) or _from_elsewhere(mount)]
    shared.sort(key=lambda mount: not _from_network(mount))
    below = [
        m
        for m in every
        if m not in shared and any(_above(t.point, m.point) for t in shared if t.point != "/")
    ]
    return [
        {
            "path": mount.point,
            "fstype": mount.fstype,
            "source": mount.source,
            "network": _from_network(mount),
            "root": mount.root,
            "device": mount.device,
        }
        for mount in shared + below
    ][:_MAX_MOUNTS]


def _from_network(mount: Mount) -> bool:
    return mount.fstype in _NETWORK_DISKS


def _from_elsewhere(mount: Mount) -> bool:
    """Whether a part of a disk is mounted. Subvolumes of btrfs look the same, but are not such a part."""
    return mount.root != "/" and mount.fstype not in _NO_DISKS


def probe_runtimes() -> List[Dict[str, str]]:
    names = [name for name in ("docker", "podman", "apptainer", "enroot") if shutil.which(name)]
    # All at once: those that hang take no longer than one.
    asked = {name: Program([name, "version" if name == "enroot" else "--version"]) for name in names}
    until, found = time.monotonic() + 5.0, []
    for name, program in asked.items():
        status, text = program.answer(max(0.0, until - time.monotonic()))
        version = re.search(r"\d+\.\d[\w.+-]*", text) if status == 0 else None
        found.append({"name": name, "version": version.group(0) if version else ""})
    return found


def probe_logout(user: str) -> Dict[str, bool | None]:
    """Would logind kill what a login leaves behind? Null where there is no logind, which then cannot."""
    answer: Dict[str, bool | None] = {"kill_user_processes": None, "linger": None}
    if shutil.which("loginctl") is None:
        return answer
    status, text = output_of(["loginctl", "show-user", user, "--property=Linger"], 5.0)
    if status == 0 and "Linger=" in text:
        answer["linger"] = "Linger=yes" in text
    command = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"]
    status, text = output_of(command + ["org.freedesktop.login1.Manager", "KillUserProcesses"], 5.0)
    if status == 0:
        answer["kill_user_processes"] = text.split()[-1:] == ["true"]
    return answer


def probe_sshd(directory: str) -> Dict[str, int | str | None]:
    """sshd's limits, as far as its files may be read: the first setting of a keyword counts, as in sshd."""
    main = os.path.join(directory, "sshd_config")
    more = os.path.join(directory, "sshd_config.d")
    try:
        names = [os.path.join(more, name) for name in sorted(os.listdir(more)) if name.endswith(".conf")]
    except OSError:
        names = []
    found: Dict[str, str] = {}
    for name in names + [main]:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            return {"max_sessions": None, "max_startups": None}
        for line in lines:
            words = line.split("#")[0].replace("=", " ").split()
            if words and words[0].lower() == "match":
                break
            if len(words) == 2:
                found.setdefault(words[0].lower(), words[1])
    sessions = found.get("maxsessions", "10")
    return {
        "max_sessions": int(sessions) if sessions.isdigit() else None,
        "max_startups": found.get("maxstartups", "10:30:100"),
    }


def probe_ptrace_scope() -> int | None:
    """Which processes a debugger may attach to: 0 where the kernel does not restrict it; null if it cannot be read."""
    path = "/proc/sys/kernel/yama/ptrace_scope"
    try:
        with open(path) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None


def probe_network() -> Dict[str, Any]:
    """The addresses of this host, and what its own name resolves to there; `name` is null where nobody can tell.

    `ssh`: the address to which this connection came. `route`: the one on the way to others. `mbit`: the speed of the
    card, null where its driver does not tell. `infiniband`: whether the host has such a card.
    """
    found = [each for each in interfaces() if not each.address.startswith("fe80:")]
    words = os.environ.get("SSH_CONNECTION", "").split()
    return {
        "interfaces": [{**each._asdict(), "mbit": mbit_of(each.name)} for each in found[:_MAX_INTERFACES]],
        "ssh": words[2] if len(words) == 4 else "",
        "route": route_address(),
        "name": addresses_of(socket.gethostname()),
        "infiniband": has_infiniband(),
    }


def mbit_of(interface: str, place: str = "/sys/class/net") -> int | None:
    try:
        with open(os.path.join(place, interface, "speed"), encoding="ascii") as file:
            mbit = int(file.read())
    except (OSError, ValueError):
        return None
    return mbit if mbit > 0 else None  # -1: no cable, or a card without a speed of its own


def has_infiniband(place: str = "/sys/class/infiniband") -> bool:
    """Whether a port of an InfiniBand card is up. Cards for RoCE stand there too, but their link is Ethernet."""
    for card in _listed(place):
        for port in _listed(os.path.join(place, card, "ports")):
            at = os.path.join(place, card, "ports", port)
            if _line(os.path.join(at, "link_layer")) == "InfiniBand" and "ACTIVE" in _line(
                os.path.join(at, "state")
            ):
                return True
    return False


def _listed(place: str) -> List[str]:
    try:
        return sorted(os.listdir(place))[:_MAX_INTERFACES]
    except OSError:
        return []


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip()
    except OSError:
        return ""


def addresses_of(name: str) -> List[str] | None:
    """What a name resolves to for programs of this host. Asked by a program of its own: a name server may be silent."""
    status, text = output_of(["getent", "ahosts", name], 5.0)
    if status == 2:
        return []
    words = [line.split() for line in text.splitlines()] if status == 0 else []
    return list(dict.fromkeys(parts[0] for parts in words if parts)) or None
