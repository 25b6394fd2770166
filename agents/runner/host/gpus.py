"""Which processes use a GPU.

Two sources, because each misses some: the driver's list of compute processes, and the processes that have
/dev/nvidia<minor> open. Without root the second source sees this login's processes only; it counts the processes that
it could not inspect.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import time
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from agents.runner.home import is_run_id
from agents.runner.processes import read_process, signal_process
from agents.runner.programs import Program
from agents.runner.runs.facts import load_facts

GPU_PATIENCE_S = 1.0  # a process that is just dying may still be listed
# How long nvidia-smi may take, and how often GPUs that are kept out of use are checked again.
GPU_LOOK_S = float(os.environ.get("TRAINYARD_GPU_LOOK_S") or 10)
MAX_HOLDERS = 8  # of one GPU: nobody would read more
# Programs that open every device without computing on it: the driver's own services, monitors, and screens.
_ONLOOKERS = {
    "nvidia-smi", "nvidia-persiste", "nvidia-powerd", "nv-hostengine", "nv-fabricmanage", "dcgm-exporter",
    "nvidia-device-p", "nvtop", "nvitop", "gpustat", "btop", "Xorg", "Xwayland", "gnome-shell", "kwin_wayland",
}  # fmt: skip


class GpuLook(NamedTuple):
    """Which processes were on which GPU. `error`: the driver could not be asked, so nothing is proved."""

    holders: Dict[str, List[Dict[str, Any]]]
    unseen: int  # processes of other users, whose open files only root may see
    error: str

    def busy(self, mark: str = "") -> Dict[str, List[Dict[str, Any]]]:
        """The processes in the way of the run with that mark. Another living run may have every device open."""
        rows = {
            uuid: [h for h in held if h["how"] == "compute" or h["run"] != "live" or h["mark"] == mark]
            for uuid, held in self.holders.items()
        }
        return {uuid: held[:MAX_HOLDERS] for uuid, held in rows.items() if held}


def _gpu_root() -> str:
    """The directory that holds /dev and /proc/driver: another one in tests only."""
    return os.environ.get("TRAINYARD_GPU_ROOT", "")


def device_node(name: str) -> str:
    """Where this device of NVIDIA is on the host."""
    return "%s/dev/%s" % (_gpu_root(), name)


def gpu_minors() -> Dict[str, int]:
    """UUID to the N of /dev/nvidiaN, which is not the index of nvidia-smi. Empty where the driver does not report
    it."""
    base = _gpu_root() + "/proc/driver/nvidia/gpus"
    found = {}
    try:
        for name in os.listdir(base):
            with open(os.path.join(base, name, "information"), errors="replace") as file:
                text = file.read(65536)
            uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.M)
            minor = re.search(r"^Device Minor:\s*(\d+)", text, re.M)
            if uuid and minor:
                found[uuid.group(1)] = int(minor.group(1))
    except OSError:
        pass
    return found


def open_devices() -> Tuple[Dict[int, Set[int]], int]:
    """(minor to the pids that have it open, how many processes could not be inspected)."""
    own, loose = _gpu_root() + "/dev/nvidia", not _gpu_root()
    found: Dict[int, Set[int]] = {}
    unseen = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fds = os.listdir("/proc/%s/fd" % name)
        except PermissionError:
            unseen += _has_command(name)
            continue
        except OSError:
            continue
        for fd in fds:
            try:
                target = os.readlink("/proc/%s/fd/%s" % (name, fd))
            except OSError:
                continue
            # The link is compared as text, for a stat could hang. In another mount namespace the path is longer.
            head, _, tail = target.rpartition("nvidia")
            if tail.isdigit() and (head + "nvidia" == own or loose and head.endswith("/dev/")):
                found.setdefault(int(tail), set()).add(int(name))
    return found, unseen


def _has_command(pid: str) -> bool:
    """Threads of the kernel have no command line, and hold no device."""
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def look_at_gpus(uuids: List[str], quick: bool = False) -> GpuLook:
    """Which processes use these GPUs now. Takes as long as nvidia-smi does, so serve itself never calls it.

    A quick look does not ask the driver where it need not: our own processes have a device open, or do not use it.
    """
    query = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    minors = gpu_minors()
    needed = not quick or any(uuid not in minors for uuid in uuids)
    asked = Program(query) if needed and shutil.which("nvidia-smi") else None
    devices, unseen = open_devices()
    found: Dict[str, Dict[Tuple[int, str], Dict[str, Any]]] = {uuid: {} for uuid in uuids}
    for uuid in uuids:
        for pid in devices.get(minors.get(uuid, -1), ()):
            found[uuid][pid, "open"] = describe_holder(pid, "open")
    error = ""
    if asked is not None:
        status, text = asked.answer(GPU_LOOK_S)
        if status != 0:
            error = text.strip()[:500] or "nvidia-smi ended with status %d" % status
        else:
            for uuid, pid in re.findall(r"^\s*([^\s,]+)\s*,\s*(\d+)\s*$", text, re.M):
                if uuid in found:
                    found[uuid].pop((int(pid), "open"), None)
                    found[uuid][int(pid), "compute"] = describe_holder(int(pid), "compute")
    holders = {
        uuid: [h for h in rows.values() if h["how"] == "compute" or h["name"] not in _ONLOOKERS]
        for uuid, rows in found.items()
    }
    return GpuLook(holders, unseen, error)


def describe_holder(pid: int, how: str) -> Dict[str, Any]:
    """A process for a person to recognise, and to be found again exactly. `run` shows whether it is one of ours."""
    process = read_process(pid)
    found: Dict[str, Any] = {"pid": pid, "ticks": 0, "user": "", "age_s": None, "name": "", "how": how}
    found.update(run="", mark="")
    if process is None:
        return found
    hertz = os.sysconf("SC_CLK_TCK")
    found.update(ticks=process.ticks, age_s=int(max(0, time.clock_gettime(7) - process.ticks / hertz)))
    with contextlib.suppress(OSError, KeyError):
        uid = os.stat("/proc/%d" % pid).st_uid
        found["user"] = str(uid)
        found["user"] = pwd.getpwuid(uid).pw_name
    found["name"] = name_of(pid)
    mark = mark_of(pid)
    found["run"] = state_of_mark(mark)
    found["mark"] = mark if found["run"] else ""
    return found


def name_of(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return "".join(c if c.isprintable() else "?" for c in file.read(64).strip())
    except OSError:
        return ""


def mark_of(pid: int) -> str:
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for item in file.read(1 << 20).split(b"\0"):
                if item.startswith(b"TRAINYARD_MARK="):
                    return item[15:].decode("utf-8", "replace")
    except OSError:
        pass
    return ""


def state_of_mark(mark: str) -> str:
    """Whether a mark belongs to a run that this host knows, of any deployment: "live", "left", or empty."""
    run = mark.partition(":")[2]
    if not is_run_id(run):
        return ""
    root = os.path.join(os.path.expanduser("~"), ".trainyard")
    for deployment in os.listdir(root) if os.path.isdir(root) else ():
        facts = load_facts(os.path.join(root, deployment, "runs", run))
        if facts is not None and facts["mark"] == mark:
            return "left" if facts["phase"] == "closed" else "live"
    return ""


def describe_holders(uuid: str, holders: List[Dict[str, Any]]) -> str:
    """`GPU-1 is in use: PID 4711 (python3) of alice for 2 h`."""
    found = []
    for holder in holders:
        name = " (%s)" % (holder["name"] or "not to be seen from here")
        user = " of %s" % holder["user"] if holder["user"] else ""
        age = " for %s" % _span(holder["age_s"]) if holder["age_s"] is not None else ""
        doing = {"open": ", by its open device", "lock": ", by its lock"}.get(holder["how"], "")
        found.append("PID %d%s%s%s%s" % (holder["pid"], name, user, age, doing))
    return "GPU %s is in use: %s" % (uuid, "; ".join(found))


def _span(seconds: int) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return "%d %s" % (seconds // size, word)
    return "%d s" % seconds


def blocking_processes(uuids: List[str], mark: str, quick: bool = False) -> Tuple[Dict[str, Any], str]:
    """Look until these GPUs are free or the time is over: (processes left on each, the driver's error).

    A process that carries `mark`, or the mark of a run that is over, is killed: it should not have outlived its run.
    """
    until = time.monotonic() + GPU_PATIENCE_S
    while True:
        look = look_at_gpus(uuids, quick)
        busy = look.busy(mark)
        for row in [row for rows in busy.values() for row in rows]:
            if row["run"] == "left" or mark and row["mark"] == mark:
                signal_process(row["pid"], row["ticks"], signal.SIGKILL)
        if not (busy or look.error) or time.monotonic() >= until:
            return busy, look.error
        time.sleep(0.1)


def report_on_gpus(locks: Dict[str, str]) -> Dict[str, Any]:
    """For the console: the processes on each of these GPUs, or the holder of its lock, such as a run that should be
    over."""
    look = look_at_gpus(list(locks))
    busy = look.busy()
    held = {uuid: busy.get(uuid, []) or lock_holders(path) for uuid, path in locks.items()}
    return {"gpus": holders_for_wire(held), "unseen": look.unseen, "error": look.error}


def lock_holders(path: str) -> List[Dict[str, Any]]:
    """Which processes hold the flock of this file, without trying to take it: that could refuse a start."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    # 1: FLOCK ADVISORY WRITE <pid> <device>:<inode> 0 EOF; a waiting lock has an arrow behind its number.
    pids = [
        int(r[4]) for r in rows if len(r) > 5 and r[1] == "FLOCK" and r[5].rpartition(":")[2] == str(inode)
    ]
    return [describe_holder(pid, "lock") for pid in pids if pid > 0]


def evict(gpu: str, pids: Set[Tuple[int, int]]) -> List[str]:
    """Kill those of `pids` that are on the GPU now; returns a text on what became of each."""
    outcomes = []
    for row in look_at_gpus([gpu]).busy().get(gpu, []):
        if (row["pid"], row["ticks"]) in pids:
            answer = signal_process(row["pid"], row["ticks"], signal.SIGKILL)
            outcome = {"sent": "was killed", "gone": "was gone already"}.get(
                answer, "runs as another user: not permitted"
            )
            outcomes.append("PID %d %s" % (row["pid"], outcome))
    return outcomes or ["none of them is on it any more"]


def holders_for_wire(busy: Dict[str, Any]) -> Dict[str, Any]:
    """The processes that hold a GPU, as they are sent: without the run's mark, which only the runner uses."""
    return {
        uuid: [{key: value for key, value in row.items() if key != "mark"} for row in rows]
        for uuid, rows in busy.items()
    }
