"""The checklist of a host, judged from its facts: each line that is not right names the cure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.hosts import cdi_checks, engine_checks, topology
from agents.hosts.data_address import is_loopback
from agents.hosts.probe import Disk, HostFacts, UnusableCard
from agents.infra.texts import join, said

# Of a further login on a machine only: whether it is separated from the other logins there (login_checks.py).
SEPARATION = "Separation"
# Every line of the checklist, in the order in which it is shown. No line in NEEDED may be wrong on a usable host.
ORDER = (
    "Reachable",
    "Host key",
    "Login",
    "Python",
    "Disk",
    "Reboot-safe",
    "After logout",
    "SSH limits",
    "Network",
    "Clock",
    "CPUs",
    "Memory",
    "GPUs",
    "Runtimes",
    "Containment",
    "Debuggers",
)
ORDER_OF_LOGIN = (*ORDER, SEPARATION)
NEEDED = frozenset({"Reachable", "Host key", "Login", "Python", "Disk", "After logout", "CPUs", "GPUs"})

# Stands for the free disk in a text that is completed when it is shown.
FREE_DISK = "{free disk}"

OLDEST_PYTHON = (3, 7)
MIN_FREE_MB = 100
CLOCK_TOLERANCE_S = 5.0
MIN_SESSIONS = 4
LOST_CURE = said(
    "Reboot the machine; dmesg (NVRM, Xid) says why. A card that is lost again is loose or broken."
)
MISSING_CURE = join(" ", [LOST_CURE, said("One that was taken out needs nothing.")])


@dataclass(frozen=True, slots=True)
class CheckItem:
    """One line. `ok` is None for what is not known yet, and for what people should know although it is not wrong.

    `now` is the same text with FREE_DISK in place of a number that changes after the check: a page that shows the
    number of now beside it must not show that of the check.
    """

    name: str
    ok: bool | None
    text: str
    fix: str = ""
    now: str = ""

    def as_row(self) -> dict[str, object]:
        return asdict(self)


def text_now(row: Mapping[str, Any], free_disk: str) -> str:
    """The text of a stored line; with FREE_DISK in it, if the free disk of now is known and the line tells it."""
    return (row.get("now") if free_disk else "") or row["text"]


def is_usable(rows: Iterable[Mapping[str, object]]) -> bool:
    """Whether a stored checklist makes the host usable: every needed line is there and none of them is wrong."""
    found = {str(row["name"]): row["ok"] for row in rows}
    if found.get(SEPARATION) is False:
        return False
    return all(found.get(name, False) is not False for name in NEEDED)


def failures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [join(": ", [str(row["name"]), row["text"]]) for row in rows if row["ok"] is False]


def check_facts(
    facts: HostFacts, clock_offset_s: float, address: str, missing: Sequence[str] = ()
) -> list[CheckItem]:
    """All lines that need a login.

    `address` is where replicas of other hosts reach those of this one. `missing` names the GPUs that were here before
    and are not listed any more.
    """
    return [
        _python(facts),
        _disk(facts),
        _reboot_safe(facts),
        _after_logout(facts),
        _ssh_limits(facts),
        _network(facts, address),
        _clock(clock_offset_s),
        CheckItem(
            "CPUs",
            facts.cpus > 0,
            said("{number} CPUs", number=facts.cpus),
            "" if facts.cpus else said("nproc must work on the host"),
        ),
        _memory(facts),
        _gpus(facts, missing),
        _runtimes(facts),
        _containment(facts),
        _debuggers(facts),
    ]


def in_order(items: Sequence[CheckItem]) -> list[CheckItem]:
    return sorted(items, key=lambda item: ORDER_OF_LOGIN.index(item.name))


def _python(facts: HostFacts) -> CheckItem:
    parts = facts.python.split(".")[:2]
    version = tuple(int(p) for p in parts if p.isdigit())
    fine = version >= OLDEST_PYTHON
    return CheckItem(
        "Python",
        fine,
        said("python3 is {version}", version=facts.python),
        "" if fine else said("Install Python 3.7 or newer as python3."),
    )


def _disk(facts: HostFacts) -> CheckItem:
    disk = facts.disk
    text, now = _free(disk, _size(disk.free_mb)), _free(disk, FREE_DISK)
    if not disk.writable:
        cure = said("{path} must be writable for {login}.", path=disk.path, login=facts.user)
        return CheckItem("Disk", False, text, cure, now)
    if disk.free_mb < MIN_FREE_MB:
        cure = said("Free at least {size} MB at {path}.", size=MIN_FREE_MB, path=disk.path)
        return CheckItem("Disk", False, text, cure, now)
    if not disk.local:
        cure = said(
            "Starts wait for a network file system and locks may not hold on it. Use a local home directory."
        )
        return CheckItem("Disk", None, text, cure, now)
    return CheckItem("Disk", True, text, now=now)


def _free(disk: Disk, free: str) -> str:
    place = said(
        "{file_system} at {path}", file_system=disk.fstype or said("unknown file system"), path=disk.path
    )
    if not disk.local:
        place = said("{place} (not local)", place=place)
    return said("{free} of {total} free, {place}", free=free, total=_size(disk.total_mb), place=place)


def _size(mebibytes: int) -> str:
    return f"{mebibytes} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"


def _reboot_safe(facts: HostFacts) -> CheckItem:
    if facts.disk.survives_reboot:
        return CheckItem("Reboot-safe", True, said("Files survive a reboot."))
    cure = said(
        "Runs and their logs are lost when this machine reboots. Put the home directory on a real disk."
    )
    text = said("{file_system} loses its files at a reboot.", file_system=facts.disk.fstype)
    return CheckItem("Reboot-safe", None, text, cure)


def _after_logout(facts: HostFacts) -> CheckItem:
    if facts.kill_user_processes and not facts.linger:
        cure = said(
            "As root: loginctl enable-linger {login} (or KillUserProcesses=no in logind.conf)",
            login=facts.user,
        )
        return CheckItem("After logout", False, said("logind kills this user's processes at logout."), cure)
    return CheckItem("After logout", True, said("Processes live on when the connection ends."))


def _ssh_limits(facts: HostFacts) -> CheckItem:
    if facts.max_sessions is None:
        text = said("sshd's settings are not readable for this user; its defaults are assumed.")
        return CheckItem("SSH limits", None, text)
    text = said(
        "MaxSessions {sessions}, MaxStartups {startups}",
        sessions=facts.max_sessions,
        startups=facts.max_startups or said("unknown"),
    )
    if facts.max_sessions < MIN_SESSIONS:
        cure = said("Set MaxSessions to {number} or more in sshd_config.", number=MIN_SESSIONS)
        return CheckItem("SSH limits", None, text, cure)
    return CheckItem("SSH limits", True, text)


def _network(facts: HostFacts, address: str) -> CheckItem:
    reached, network = said("Replicas are reached at {address}", address=address), facts.network
    if network is None:
        return CheckItem("Network", None, reached)
    names = [each.name for each in network.interfaces if each.address == address]
    if names:
        reached = said("{reached} ({interface})", reached=reached, interface=names[0])
    else:
        reached = said("{reached}, which is on no interface of this host", reached=reached)
    if network.name is None:
        text = said("{reached}; what its own name resolves to is not known", reached=reached)
        return CheckItem("Network", None, text)
    text = said(
        "{reached}; its own name, {name}, resolves to {addresses}",
        reached=reached,
        name=facts.hostname,
        addresses=", ".join(network.name) or said("nothing"),
    )
    if network.name and (not all(map(is_loopback, network.name)) or is_loopback(address)):
        return CheckItem("Network", True if names else None, text)
    cure = said(
        "As root, give {name} the address {address} in /etc/hosts. A program that looks up its own name"
        " (JAX on CPUs) listens where no other host reaches it. Torch and NCCL need no cure: variables tell them"
        " the interface.",
        name=facts.hostname,
        address=address,
    )
    return CheckItem("Network", None, text, cure)


def _clock(offset_s: float) -> CheckItem:
    seconds = f"{abs(offset_s):.1f}"
    if offset_s > 0:
        text = said("{seconds} s ahead of this server", seconds=seconds)
    else:
        text = said("{seconds} s behind this server", seconds=seconds)
    if abs(offset_s) <= CLOCK_TOLERANCE_S:
        return CheckItem("Clock", True, text)
    return CheckItem(
        "Clock",
        None,
        text,
        said(
            "Turn on time synchronisation (chrony, systemd-timesyncd). "
            "The order and duration of events are right anyway."
        ),
    )


DEBUGGERS_CURE = said(
    "As root: sysctl -w kernel.yama.ptrace_scope=0, and a line kernel.yama.ptrace_scope = 0 in"
    " /etc/sysctl.d/10-ptrace.conf (until a reboot nothing goes back from 3). Else start the program under the"
    " debugger: py-spy record -- python3 train.py."
)


def _debuggers(facts: HostFacts) -> CheckItem:
    if facts.ptrace_scope is None:
        return CheckItem(
            "Debuggers", None, said("Whether py-spy and gdb may attach to a program is not known.")
        )
    if facts.ptrace_scope == 0:
        return CheckItem(
            "Debuggers",
            True,
            said(
                "In a shell, py-spy, which is brought along, and gdb may attach to a program of this login."
            ),
        )
    text = said(
        "In a shell, py-spy and gdb may not attach to a running program (ptrace_scope is {number})",
        number=facts.ptrace_scope,
    )
    return CheckItem("Debuggers", None, text, DEBUGGERS_CURE)


def _memory(facts: HostFacts) -> CheckItem:
    size = _size(facts.memory_mb)
    if facts.memory_limits:
        text = said("{size}; a machine type's limit is enforced", size=size)
        return CheckItem("Memory", facts.memory_mb > 0 or None, text)
    cure = said(
        "A run may use more memory than its machine type has, and take it from other runs. A cgroup with the memory"
        " controller that belongs to this login (systemd: Delegate=memory) enforces the limit."
    )
    return CheckItem(
        "Memory", None, said("{size}; a machine type's limit is not enforced here", size=size), cure
    )


def _runtimes(facts: HostFacts) -> CheckItem:
    right, text, cure = engine_checks.judge(
        facts.installed, facts.engine, facts.user, facts.docker, facts.apptainer
    )
    for words, its_cure, is_needed in _gpus_of_containers(facts):
        if words:
            right = right and None if is_needed else right
            text, cure = join("; ", [text, words]), join(" ", [cure, its_cure]) if cure else its_cure
    return CheckItem("Runtimes", right, text, cure)


def _gpus_of_containers(facts: HostFacts) -> Iterator[tuple[str, str, bool]]:
    """(text, cure, whether the host lacks something by it). Apptainer shows the devices of the host, and Docker may
    have NVIDIA's hook: these need no spec."""
    uuids, out = [device.uuid for device in facts.gpus], [card.uuid for card in facts.gpus_out]
    podman = facts.engine is not None and facts.engine.works
    docker = facts.docker if facts.docker is not None and facts.docker.works else None
    docker = None if facts.nvidia_hook else docker
    if podman or (docker is not None and docker.cdi):
        yield (*cdi_checks.judge(facts.cdi, uuids, facts.gpu_nodes, out), True)
    if docker is not None and docker.cdi is False:
        # Where podman works, only jobs that name Docker need it.
        yield (*cdi_checks.judge_docker(uuids, facts.gpu_nodes), not podman)


def _gpus(facts: HostFacts, missing: Sequence[str]) -> CheckItem:
    if facts.gpu_error:
        return CheckItem(
            "GPUs", False, facts.gpu_error, said("Make nvidia-smi work for this user, then check again.")
        )
    unusable = [_unusable_card(card) for card in facts.gpus_out]
    unusable += [
        (said("{gpu} was here before and is not listed any more", gpu=name), MISSING_CURE) for name in missing
    ]
    parts = _usable_gpus(facts)
    if not unusable:
        return CheckItem("GPUs", True, join("; ", parts))
    parts.append(said("not used: {gpus}", gpus=join(", ", [text for text, _ in unusable])))
    # The other cards and the CPUs remain usable.
    return CheckItem("GPUs", None, join("; ", parts), join(" ", dict.fromkeys(cure for _, cure in unusable)))


def _usable_gpus(facts: HostFacts) -> list[str]:
    if not facts.gpus:
        return [said("none") if facts.nvidia_smi else said("none (no nvidia-smi)")]
    kinds: dict[str, int] = {}
    for device in facts.gpus:
        label = f"{device.model} {device.memory_mb / 1024:.0f} GiB"
        kinds[label] = kinds.get(label, 0) + 1
    parts: list[str] = [
        ", ".join(f"{n} × {label}" for label, n in kinds.items()),
        topology.topology_text(facts.topology),
    ]
    if facts.gpu_unseen:
        unseen = said(
            "this login cannot see which devices {number} processes of other users have open:"
            " for those, nvidia-smi's list counts",
            number=facts.gpu_unseen,
        )
        parts.append(unseen)
    return [part for part in parts if part]


def _unusable_card(card: UnusableCard) -> tuple[str, str]:
    """(the card and what is wrong with it, the cure)."""
    number = "N" if card.index is None else str(card.index)
    name = f"GPU {number}" + (f" ({card.uuid})" if card.uuid else "")
    if card.why == "mig":
        cure = said(
            "Slices are not offered. To use it whole, as root with nothing on it: nvidia-smi -i {number} -mig 0.",
            number=number,
        )
        return said("{gpu} is in MIG mode", gpu=name), cure
    if card.why == "reset":
        cure = said(
            "As root, with nothing on it: nvidia-smi --gpu-reset -i {number}, or reboot.", number=number
        )
        return said("{gpu} needs a reset", gpu=name), cure
    if card.index is None and card.text:
        return card.text, LOST_CURE
    return said("{gpu} does not answer", gpu=name), LOST_CURE


def _containment(facts: HostFacts) -> CheckItem:
    strong = facts.containment == "cgroup"
    text = facts.containment_text or facts.containment
    if facts.pid_namespace is False and not strong:
        why = facts.pid_namespace_why or said("no reason given")
        text = said("{containment}; PID namespaces are not possible ({why})", containment=text, why=why)
    elif facts.pid_namespace:
        text = said(
            "{containment}; PID namespaces can be switched on for this host (its page, Maintenance)",
            containment=text,
        )
    return CheckItem("Containment", strong or None, text, "" if strong else _containment_cure(facts))


def _containment_cure(facts: HostFacts) -> str:
    hides = said("A process that hides on purpose may survive a stop.")
    if facts.pid_namespace:
        cure = said(
            "A delegated cgroup (systemd user session) prevents that, and so does a PID namespace for each run."
        )
    else:
        cure = said("A delegated cgroup (systemd user session) prevents that.")
    return join(" ", [hides, cure])
