"""Stacks: where the Python programs of runs stand now, as py-spy sees them. One look, and nothing is left of it.

One line of JSON in, one line out, then a document of the size that the line says. py-spy runs on the host, also for
programs in containers: it looks at their processes by the host's numbers. What may not be looked at is named with the
reason. The shells of a run, and what is started in them, are left out: they are no part of what hangs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any, Dict, Iterator, List, NoReturn, Set, Tuple

from agents.runner.files import read_json, read_line
from agents.runner.home import Home
from agents.runner.host.probe import probe_ptrace_scope
from agents.runner.logs.mask_patterns import MaskPatterns, blank, parts_of
from agents.runner.processes import Process, all_processes, descendants, marked
from agents.runner.programs import Program
from agents.runner.runs.containment import cgroup_pids
from agents.runner.runtimes.adapters import container_of
from agents.runner.shells.frames import json_line
from agents.runner.shells.running import Closed, Running, running_run
from agents.runner.shells.tools import ToolsMissing, place_of
from agents.runner.wire import STACKS_PREFACE, Message, WireError, decode_object

# All looks together, and one of them. The alarm is for a disk or a kernel that does not answer.
LOOK_S, ONE_S, ALARM_S = 8.0, 4.0, 20
AT_ONCE = 4
MAX_RUNS, MAX_PROCESSES = 64, 128
# What is told of one run, if the console has not asked for less.
MAX_BYTES = 64 * 1024
MAX_THREADS, MAX_FRAMES, MAX_TEXT = 64, 100, 200

_THREAD = re.compile(r'Thread \S+ \((\w+)[^)]*\)(?:: "(.*)")?\Z')
# Its first lines repeat the command, which may have any text.
_HEAD = re.compile(r"^Python v\S+ \(.*\)$", re.M)


def main() -> NoReturn:
    os.write(1, STACKS_PREFACE)
    signal.alarm(ALARM_S)
    try:
        request = decode_object(read_line(0))
        data = json.dumps(stacks(request, time.monotonic() + LOOK_S), separators=(",", ":")).encode("ascii")
    except ToolsMissing as missing:
        os.write(1, json_line({"error": str(missing), "missing": missing.machine}))
        os._exit(1)
    except (WireError, OSError, ValueError, KeyError, TypeError) as error:
        os.write(1, json_line({"error": "%s" % (error or repr(error))}))
        os._exit(1)
    data = json_line({"ok": True, "size": len(data)}) + data
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


def stacks(request: Message, until: float) -> Dict[str, Any]:
    """For each run, its processes with their threads, or an error. `until`: of the monotonic clock."""
    home = Home(request["deployment"])
    place = place_of(home.tools, request.get("tools"))
    found: Dict[str, Any] = {}
    looks: List[Look] = []
    everyone = all_processes()
    room = min(int(request.get("room", MAX_BYTES)), MAX_BYTES)
    for run in request["runs"][:MAX_RUNS]:
        try:
            running = running_run(home.run(run))
            if not place:
                raise Closed(
                    "no_py_spy", "there is no py-spy for processors of this kind: %s" % os.uname().machine
                )
        except ValueError as error:
            reason = error.reason if isinstance(error, Closed) else ""
            found[run] = {"error": str(error), "reason": reason}
            continue
        patterns = MaskPatterns({part for value in running.secrets for part in parts_of(value)})
        processes = processes_of(running, home, run, everyone)
        found[run] = {"container": bool(running.facts["runtime"].get("name")), "count": len(processes)}
        looks += [Look(run, each.pid, patterns) for each in processes[:MAX_PROCESSES]]
    look_at_all(looks, os.path.join(place, "bin", "py-spy"), until)
    for run, answer in found.items():
        if "error" not in answer:
            answer.update(told([look for look in looks if look.run == run], room))
    return {"runs": found, "ptrace_scope": probe_ptrace_scope()}


def processes_of(running: Running, home: Home, run: str, everyone: Dict[int, Process]) -> List[Process]:
    """The living processes of the run, the oldest first, without our own and those of shells."""
    facts = running.facts
    roots = same_process(everyone, facts["pid"], facts["ticks"])
    if facts["runtime"].get("name"):
        container = container_of(running.directory, facts)
        if container.is_alive():
            roots.add(container.pid_in("container.pid"))
    pids = roots | descendants(roots, everyone) | cgroup_pids(facts["cgroup"])
    pids |= marked(facts["mark"], everyone)
    pids -= shells_of(home, run, everyone)
    found = [everyone[pid] for pid in pids if pid in everyone and everyone[pid].state not in "ZX"]
    found = [each for each in found if not command_of(each.pid).startswith("trainyard-")]
    return sorted(found, key=lambda each: (each.ticks, each.pid))


def same_process(everyone: Dict[int, Process], pid: Any, ticks: Any) -> Set[int]:
    """The process, if it still is the one that had this number."""
    found = everyone.get(pid) if isinstance(pid, int) else None
    return {found.pid} if found is not None and found.ticks == ticks else set()


def shells_of(home: Home, run: str, everyone: Dict[int, Process]) -> Set[int]:
    """The processes that hold shells of the run, and all below them."""
    try:
        names = os.listdir(home.shells)
    except OSError:
        return set()
    holders: Set[int] = set()
    for name in names:
        record = read_json(os.path.join(home.shells, name)) or {}
        if record.get("run") == run:
            holders |= same_process(everyone, record.get("pid"), record.get("ticks"))
    return holders | descendants(holders, everyone)


def command_of(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            data = file.read(4096)
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode("utf-8", "replace").strip()


class Look:
    """One look at one process. `problem`: empty, "denied", "slow", or words of py-spy; None for what is no Python."""

    def __init__(self, run: str, pid: int, patterns: MaskPatterns) -> None:
        self.run, self.pid = run, pid
        self.problem: str | None = ""
        self.threads: List[Tuple[str, str, List[str]]] = []
        self._patterns = patterns
        self._program: Program | None = None
        self._began = 0.0

    def start(self, py_spy: str) -> bool:
        """False where there is nothing to wait for."""
        try:
            with open("/proc/%d/maps" % self.pid, "rb") as file:
                is_python = b"python" in file.read()
        except PermissionError:
            self.problem = "denied"
            return False
        except OSError:
            is_python = False
        if not is_python:
            self.problem = None
            return False
        self._began = time.monotonic()
        self._program = Program([py_spy, "dump", "--pid", "%d" % self.pid])
        return True

    def is_over(self, now: float) -> bool:
        assert self._program is not None
        return self._program.read() or now > self._began + ONE_S

    def finish(self) -> None:
        assert self._program is not None
        over = self._program.read()
        status, text = self._program.answer(1.0 if over else 0.0)
        if status == 0:
            self.threads = list(self._read(text))
        elif not over:
            self.problem = "slow"
        elif "permission denied" in text.lower() or "operation not permitted" in text.lower():
            self.problem = "denied"
        elif not os.path.exists("/proc/%d" % self.pid):
            self.problem = None
        else:
            self.problem = self._clean(" ".join(text.split())) or "py-spy ended with status %d" % status

    def _read(self, text: str) -> Iterator[Tuple[str, str, List[str]]]:
        head = _HEAD.search(text)
        name, state = "", ""
        frames: List[str] | None = None
        for line in text[head.end() if head else 0 :].splitlines():
            thread = _THREAD.match(line)
            if thread is not None:
                if frames is not None:
                    yield name, state, frames
                state, name, frames = thread.group(1), self._clean(thread.group(2) or ""), []
            elif frames is not None and line.startswith("    ") and len(frames) < MAX_FRAMES:
                frames.append(self._clean(line.strip()))
        if frames is not None:
            yield name, state, frames

    def _clean(self, text: str) -> str:
        """Without secret values of the run, and short."""
        data = bytearray(text.encode("utf-8", "replace"))
        blank(data, self._patterns.spans(bytes(data)))
        return data.decode("utf-8", "replace")[:MAX_TEXT]

    def document(self, room: int) -> Dict[str, Any]:
        """What is told of the process: as many threads as there is room for, in bytes."""
        about = {"pid": self.pid, "command": self._clean(command_of(self.pid))}
        if self.problem:
            return dict(about, problem=self.problem)
        threads, room = [], room - len(json_line(about)) - 40
        for thread in self.threads[:MAX_THREADS]:
            room -= len(json_line({"": thread}))
            if room < 0:
                break
            threads.append(thread)
        return dict(about, threads=threads, left_out=len(self.threads) - len(threads))


def look_at_all(looks: List[Look], py_spy: str, until: float) -> None:
    """A few at a time. Those that come too late are slow."""
    waiting = list(looks)
    active: List[Look] = []
    while waiting or active:
        now = time.monotonic()
        while waiting and len(active) < AT_ONCE and now < until:
            look = waiting.pop(0)
            if look.start(py_spy):
                active.append(look)
        for look in [each for each in active if now >= until or each.is_over(now)]:
            look.finish()
            active.remove(look)
        if now >= until:
            for look in waiting:
                look.problem = "slow"
            return
        if active:
            time.sleep(0.005)


def told(looks: List[Look], left: int) -> Dict[str, Any]:
    """As many processes of a run as there is room for, in bytes, and how many are left out."""
    documents: List[Dict[str, Any]] = []
    seen = [look for look in looks if look.problem is not None]
    for look in seen:
        document = look.document(left)
        left -= len(json_line(document))
        if left < 0 or (document.get("left_out") and not document["threads"]):
            break
        documents.append(document)
    return {"processes": documents, "left_out": len(seen) - len(documents)}
