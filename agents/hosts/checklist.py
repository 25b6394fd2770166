"""The checklist of a host, judged from its facts: each line that is not right names the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from agents.hosts import topology
from agents.hosts.data_address import is_loopback
from agents.hosts.probe import HostFacts, UnusableCard

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
LOST_CURE = "Reboot the machine; dmesg (NVRM, Xid) says why. A card that is lost again is loose or broken."
MISSING_CURE = f"{LOST_CURE} One that was taken out needs nothing."


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


def text_now(row: Mapping[str, object], free_disk: str) -> str:
    """Return the text of a stored line, with this, if it is known, in place of the free disk when it was checked."""
    now = str(row.get("now") or "") if free_disk else ""
    return now.replace(FREE_DISK, free_disk) if now else str(row["text"])


def is_usable(rows: Iterable[Mapping[str, object]]) -> bool:
    """Whether a stored checklist makes the host usable: every needed line is there and none of them is wrong."""
    found = {str(row["name"]): row["ok"] for row in rows}
    if found.get(SEPARATION) is False:
        return False
    return all(found.get(name, False) is not False for name in NEEDED)


def failures(rows: Iterable[Mapping[str, object]]) -> list[str]:
    return [f"{r['name']}: {r['text']}" for r in rows if r["ok"] is False]


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
            "CPUs", facts.cpus > 0, f"{facts.cpus} CPUs", "" if facts.cpus else "nproc must work on the host"
        ),
        _memory(facts),
        _gpus(facts, missing),
        CheckItem("Runtimes", None, ", ".join(["host", *facts.runtimes])),
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
        f"python3 is {facts.python}",
        "" if fine else "Install Python 3.7 or newer as python3.",
    )


def _disk(facts: HostFacts) -> CheckItem:
    disk = facts.disk
    place = f"{disk.fstype or 'unknown file system'} at {disk.path}{'' if disk.local else ' (not local)'}"
    text = f"{disk.free_mb / 1024:.1f} of {disk.total_mb / 1024:.1f} GiB free, {place}"
    now = f"{FREE_DISK} of {disk.total_mb / 1024:.1f} GiB free, {place}"
    if not disk.writable:
        return CheckItem("Disk", False, text, f"{disk.path} must be writable for {facts.user}.", now)
    if disk.free_mb < MIN_FREE_MB:
        return CheckItem("Disk", False, text, f"Free at least {MIN_FREE_MB} MB at {disk.path}.", now)
    if not disk.local:
        cure = (
            "Starts wait for a network file system and locks may not hold on it. Use a local home directory."
        )
        return CheckItem("Disk", None, text, cure, now)
    return CheckItem("Disk", True, text, now=now)


def _reboot_safe(facts: HostFacts) -> CheckItem:
    if facts.disk.survives_reboot:
        return CheckItem("Reboot-safe", True, "Files survive a reboot.")
    cure = "Runs and their logs are lost when this machine reboots. Put the home directory on a real disk."
    return CheckItem("Reboot-safe", None, f"{facts.disk.fstype} loses its files at a reboot.", cure)


def _after_logout(facts: HostFacts) -> CheckItem:
    if facts.kill_user_processes and not facts.linger:
        cure = f"As root: loginctl enable-linger {facts.user} (or KillUserProcesses=no in logind.conf)"
        return CheckItem("After logout", False, "logind kills this user's processes at logout.", cure)
    return CheckItem("After logout", True, "Processes live on when the connection ends.")


def _ssh_limits(facts: HostFacts) -> CheckItem:
    if facts.max_sessions is None:
        return CheckItem(
            "SSH limits", None, "sshd's settings are not readable for this user; its defaults are assumed."
        )
    text = f"MaxSessions {facts.max_sessions}, MaxStartups {facts.max_startups or 'unknown'}"
    if facts.max_sessions < MIN_SESSIONS:
        return CheckItem(
            "SSH limits", None, text, f"Set MaxSessions to {MIN_SESSIONS} or more in sshd_config."
        )
    return CheckItem("SSH limits", True, text)


def _network(facts: HostFacts, address: str) -> CheckItem:
    text, network = f"Replicas are reached at {address}", facts.network
    if network is None:
        return CheckItem("Network", None, text)
    names = [each.name for each in network.interfaces if each.address == address]
    text += f" ({names[0]})" if names else ", which is on no interface of this host"
    if network.name is None:
        return CheckItem("Network", None, f"{text}; what its own name resolves to is not known")
    resolved = ", ".join(network.name) or "nothing"
    text += f"; its own name, {facts.hostname}, resolves to {resolved}"
    if network.name and (not all(map(is_loopback, network.name)) or is_loopback(address)):
        return CheckItem("Network", True if names else None, text)
    cure = (
        f"As root, give {facts.hostname} the address {address} in /etc/hosts. A program that looks up its own name"
        " (JAX on CPUs) listens where no other host reaches it. Torch and NCCL need no cure: variables tell them"
        " the interface."
    )
    return CheckItem("Network", None, text, cure)


def _clock(offset_s: float) -> CheckItem:
    text = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} this server"
    if abs(offset_s) <= CLOCK_TOLERANCE_S:
        return CheckItem("Clock", True, text)
    return CheckItem(
        "Clock",
        None,
        text,
        "Turn on time synchronisation (chrony, systemd-timesyncd). The order and duration of events are right anyway.",
    )


def _debuggers(facts: HostFacts) -> CheckItem:
    if facts.ptrace_scope is None:
        return CheckItem("Debuggers", None, "Whether py-spy and gdb may attach to a program is not known.")
    if facts.ptrace_scope == 0:
        return CheckItem(
            "Debuggers", True, "In a shell, py-spy and gdb may attach to a program of this login."
        )
    cure = (
        "As root: sysctl -w kernel.yama.ptrace_scope=0, and a line kernel.yama.ptrace_scope = 0 in"
        " /etc/sysctl.d/10-ptrace.conf (until a reboot nothing goes back from 3). Else start the program under the"
        " debugger: py-spy record -- python3 train.py."
    )
    text = f"In a shell, py-spy and gdb may not attach to a running program (ptrace_scope is {facts.ptrace_scope})"
    return CheckItem("Debuggers", None, text, cure)


def _memory(facts: HostFacts) -> CheckItem:
    size = f"{facts.memory_mb / 1024:.1f} GiB"
    if facts.memory_limits:
        return CheckItem("Memory", facts.memory_mb > 0 or None, f"{size}; a machine type's limit is enforced")
    cure = (
        "A run may use more memory than its machine type has, and take it from other runs. A cgroup with the memory"
        " controller that belongs to this login (systemd: Delegate=memory) enforces the limit."
    )
    return CheckItem("Memory", None, f"{size}; a machine type's limit is not enforced here", cure)


def _gpus(facts: HostFacts, missing: Sequence[str]) -> CheckItem:
    if facts.gpu_error:
        return CheckItem(
            "GPUs", False, facts.gpu_error, "Make nvidia-smi work for this user, then check again."
        )
    unusable = [_unusable_card(card) for card in facts.gpus_out]
    unusable += [(f"{name} was here before and is not listed any more", MISSING_CURE) for name in missing]
    parts = _usable_gpus(facts)
    if not unusable:
        return CheckItem("GPUs", True, "; ".join(parts))
    parts.append("not used: " + ", ".join(text for text, _ in unusable))
    # The other cards and the CPUs remain usable.
    return CheckItem("GPUs", None, "; ".join(parts), " ".join(dict.fromkeys(cure for _, cure in unusable)))


def _usable_gpus(facts: HostFacts) -> list[str]:
    if not facts.gpus:
        return ["none" if facts.nvidia_smi else "none (no nvidia-smi)"]
    kinds: dict[str, int] = {}
    for device in facts.gpus:
        label = f"{device.model} {device.memory_mb / 1024:.0f} GiB"
        kinds[label] = kinds.get(label, 0) + 1
    parts = [
        ", ".join(f"{n} × {label}" for label, n in kinds.items()),
        topology.topology_text(facts.topology),
    ]
    if facts.gpu_unseen:
        parts.append(
            f"this login cannot see which devices {facts.gpu_unseen} processes of other users have open:"
            " for those, nvidia-smi's list counts"
        )
    return [part for part in parts if part]


def _unusable_card(card: UnusableCard) -> tuple[str, str]:
    """(the card and what is wrong with it, the cure)."""
    number = "N" if card.index is None else str(card.index)
    name = f"GPU {number}" + (f" ({card.uuid})" if card.uuid else "")
    if card.why == "mig":
        cure = f"Slices are not offered. To use it whole, as root with nothing on it: nvidia-smi -i {number} -mig 0"
        return f"{name} is in MIG mode", cure + "."
    if card.why == "reset":
        cure = f"As root, with nothing on it: nvidia-smi --gpu-reset -i {number}, or reboot."
        return f"{name} needs a reset", cure
    return card.text if card.index is None and card.text else f"{name} does not answer", LOST_CURE


def _containment(facts: HostFacts) -> CheckItem:
    strong = facts.containment == "cgroup"
    text, cure = facts.containment_text or facts.containment, ""
    if facts.pid_namespace is False and not strong:
        text += f"; PID namespaces are not possible ({facts.pid_namespace_why or 'no reason given'})"
    elif facts.pid_namespace:
        text += "; PID namespaces can be switched on for this host (its page, Maintenance)"
    if not strong:
        cure = "A process that hides on purpose may survive a stop."
        cure += " A delegated cgroup (systemd user session) prevents that"
        cure += ", and so does a PID namespace for each run." if facts.pid_namespace else "."
    return CheckItem("Containment", strong or None, text, cure)
