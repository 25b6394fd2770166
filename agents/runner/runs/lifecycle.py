"""The life of a run as its keeper sees it: from a process at its gate to the proof that no process is left."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from typing import List, Tuple

from agents.runner.failpoints import failpoint
from agents.runner.files import SECRETS, clean_directory, read_deadline, unlink
from agents.runner.forks import wake_on_signals
from agents.runner.home import Home
from agents.runner.logs.budget import LogBudget
from agents.runner.metrics.collect import read_last
from agents.runner.metrics.hypertune_file import HypertuneFile
from agents.runner.processes import (
    Denied,
    Process,
    all_processes,
    descendants,
    describe_survivors,
    freeze_and_kill,
    marked,
    read_process,
    signal_all,
)
from agents.runner.runs.containment import (
    OOM_LOOK_S,
    OomWatch,
    cgroup_pids,
    remove_cgroup,
    try_write,
)
from agents.runner.runs.facts import Facts, add_message, close_unstarted, new_facts, save_facts
from agents.runner.runs.held_resources import HeldResources, kill_leftovers_on_gpus, remove_cgroups
from agents.runner.runs.no_exit import Found, explain_no_exit
from agents.runner.runs.orders import Order
from agents.runner.runs.replica import GO, Replica
from agents.runner.runs.scratch import remove_scratch
from agents.runner.runs.shared_memory import SharedMemory, sweep_shared_memory
from agents.runner.runtimes.adapters import container_of
from agents.runner.runtimes.containers import Container
from agents.runner.runtimes.packages import trouble_of
from agents.runner.wire import finite_float

# How long a namespace's first process has to report how the replica ended, before it is killed itself.
INIT_REPORTS_S = 2.0
INIT_KILLED = "the first process of its PID namespace was killed, and everybody there with it"
UP_LOOK_S = 0.03  # while a container is being made
CLD_KILLED = 2  # in `os` since Python 3.9 only


class RunLifecycle:
    """One run's life.

    All that is known is on disk or on the page that keepers and replica share, so that another process can go on from
    any point: an exit is written down before the zombie that proves it is reaped.
    """

    def __init__(self, home: Home, run: str, umask: int = 0o022, seal: str = "") -> None:
        self.home, self.run, self.umask = home, run, umask
        self.directory = home.run(run)
        self.facts: Facts = new_facts(run, seal)
        self.order: Order | None = None
        self.timeout_s: float | None = None
        self.log_budget_mb = 1
        self.replica_pid = 0
        # The first process of the replica's PID namespace, if it has one: then that is our child, not the replica.
        self.init_pid = 0
        self.replica_over = False
        self.no_children = False
        self.kill_init = False  # is a namespace's first process killed like the others?
        self.search_by_mark = False  # may processes of this run be outside our own tree?
        self.orphan: Process | None = None
        self.parent = 0
        self.stopping: str | None = None
        self.deadline = 0.0
        self.held = HeldResources(home, run)
        self.log = self.control = -1
        self.log_budget: LogBudget
        self.replica: Replica | None = None
        self.shared: SharedMemory | None = None
        self.container: Container | None = None
        self.oom = OomWatch()
        self.hypertune = HypertuneFile(self.directory)

    def progress(self) -> Tuple[int, int, int, str]:
        """What the replica's process has reached. Without the shared page: it may have executed the command."""
        return self.replica.progress() if self.replica else (0, GO, 0, "")

    def gated_replica(self) -> Replica:
        assert self.replica is not None
        return self.replica

    def enter_namespace(self) -> None:
        """The replica lives in a PID namespace of its own, and the first process there reports its end."""
        self.init_pid = self.gated_replica().init_pid()
        process = read_process(self.init_pid)
        self.facts.update(containment="pid_namespace", first=[self.init_pid, process.ticks if process else 0])

    def find_container(self) -> bool:
        """Whether the run has a container: then the facts name it."""
        if self.facts["runtime"].get("name"):
            self.container = container_of(self.directory, self.facts)
        return self.container is not None

    def continue_init(self) -> None:
        """Send SIGCONT to a namespace's first process: while it is suspended, it cannot report how the replica ends."""
        if self.init_pid and not self.replica_over:  # not reaped yet: the pid is still its own
            os.kill(self.init_pid, signal.SIGCONT)

    def watch_children(self) -> None:
        self.wake, write = os.pipe()
        for fd in (self.wake, write):
            os.set_blocking(fd, False)
        wake_on_signals(write)

    def watch_shared_memory(self) -> None:
        self.shared = SharedMemory(
            self.directory, lambda: {process.pid for process in self.living_processes()}
        )

    def look_at_shared_memory(self) -> None:
        """Before processes end: later nobody can tell what they made."""
        if self.shared:
            self.shared.look(time.monotonic(), self.replica_pid)

    def shared_memory_changed(self) -> None:
        if self.shared:
            self.shared.look_at = self.shared.next_look

    def supervise(self) -> None:
        """Watch the run from its first moment until it is closed."""
        poll = select.poll()
        started = self.gated_replica().started
        shared = self.shared.fd if self.shared else -1
        for fd in (self.wake, self.control, started, self.log_budget.fd, shared):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        look_at = 0.0
        while True:
            self.reap()
            self.is_followed()
            if self.no_children and (self.replica_over or self.replica_pid == 0):
                break
            now = time.monotonic()
            # After reaping: what was counted just before belongs to an end that was just seen.
            self.oom.look(now)
            self.hypertune.look(poll)
            self.check_stop(now)
            if self.stopping and now >= self.deadline or self.replica_over and not self.stopping:
                break
            if self.shared and now >= self.shared.look_at:
                self.shared.look(now, self.replica_pid)
                if shared >= 0:
                    poll.register(shared, select.POLLIN)
            if now >= look_at:
                look_at = now + self.log_budget.check()
                if self.log_budget.quiet and self.log_budget.fd >= 0:
                    poll.register(self.log_budget.fd, select.POLLIN)  # its next byte wakes us
            if self.container:
                self.note_started()
            for fd, _ in poll.poll(max(0.0, min(look_at, self.next_deadline(now)) - now) * 1000 + 1):
                if fd == started:
                    poll.unregister(fd)
                    self.note_started()
                elif fd == self.log_budget.fd:
                    self.log_budget.drain()
                    poll.unregister(fd)  # it grows fast: from here on check by the clock, not at every write
                    look_at = min(look_at, now + 0.01)
                elif fd == shared:
                    poll.unregister(fd)
                    self.shared_memory_changed()
                elif fd == self.control:
                    self.read_control(os.read(fd, 4096))
                elif fd != self.hypertune.fd:
                    os.read(fd, 4096)
        self.finish()

    def next_deadline(self, now: float) -> float:
        if self.stopping:
            return self.deadline
        if self.shared:
            now = min(now, self.shared.look_at - OOM_LOOK_S)
        if self.container and self.facts["started_at"] is None:
            now -= OOM_LOOK_S - UP_LOOK_S
        timeout, started = self.timeout_s, self.facts["mono_started"]
        return min(started + timeout if timeout and started else math.inf, now + OOM_LOOK_S)

    def note_started(self) -> None:
        """The started pipe closed: the replica's process has executed the command, or never will."""
        if self.facts["started_at"] is not None or self.replica_over or self.progress()[1] != GO:
            return
        if self.container and not self.container.is_up():
            return  # its engine is still making it
        pid = self.container.pid_in("container.pid") if self.container else self.replica_pid
        process = read_process(pid)
        self.facts.update(
            phase="running",
            started_at=time.time(),
            mono_started=time.monotonic(),
            pid=pid,
            ticks=process.ticks if process else None,
            never_started=False,
        )
        if self.progress()[2] & 1 and not self.init_pid:
            self.facts["containment"] = "subreaper"
        if self.progress()[2] & 2:
            # No process is in it, and from here on the facts do not name it.
            remove_cgroup(str(self.facts["memory_cgroup"]))
            self.facts.update(memory_enforced=False, memory_cgroup=None)
        failpoint("before_started")
        self.save()
        failpoint("after_started")

    def save(self, durable: bool = False) -> None:
        """Save the facts. A save that fails is repeated until it succeeds: while this process lives, no fact is
        lost."""
        while True:
            try:
                save_facts(self.directory, self.facts, durable)
                return
            except OSError:
                if not os.path.isdir(self.directory):
                    return  # the directory of the run was deleted: there is no place left to write to
                time.sleep(0.2)

    def reap(self) -> None:
        if self.init_pid and not self.replica_over:
            end = self.gated_replica().reported_end()
            if end is not None:
                # Others in the namespace may take longer to die, and its first process with them.
                self.note_ended(*end)
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.no_children = True
                self.replica_over = self.replica_over or self.container is not None and not self.is_followed()
                return
            self.no_children = False
            if found is None:
                return
            if self.container and not self.replica_over:
                end = self.container.end_of(self.replica_pid, found.si_pid, found.si_code, found.si_status)
                self.replica_over = self.container.given_up()
                if end is not None:
                    self.note_ended(*end)
            elif found.si_pid == (self.init_pid or self.replica_pid) and not self.replica_over:
                self.note_ended(*self.end_of(found.si_code, found.si_status))
            os.waitpid(found.si_pid, 0)

    def is_followed(self) -> bool:
        """Whether a process of ours watches the container, and will tell how its program ended."""
        if self.container is None or self.replica_over:
            return False
        return self.container.keep_followed(self.log, self.replica_pid, self.progress()[1] == GO)

    def end_of(self, code: int, status: int) -> Tuple[int, int]:
        """How the replica ended, if our child ended like this."""
        if not self.init_pid:
            return code, status
        end = self.gated_replica().reported_end()
        if end is None:
            # It was killed before it could report, and the kernel killed the replica with it.
            end = CLD_KILLED, signal.SIGKILL
            if not self.stopping:
                self.facts["message"] = INIT_KILLED
        return end

    def note_ended(self, code: int, status: int) -> None:
        """Write how the replica ended, before the zombie that proves it is reaped."""
        if self.progress()[1] == GO:
            self.note_started()
            self.replica_over = True
            if self.container and self.facts["started_at"] is None:
                self.facts.update(started_at=time.time(), mono_started=time.monotonic(), never_started=False)
            facts = self.facts
            exited = code == os.CLD_EXITED
            facts.update(
                phase="ended",
                ended_at=time.time(),
                seconds=time.monotonic() - (facts["mono_started"] or time.monotonic()),
                exit_code=status if exited else None,
                exit_signal=None if exited else status,
                why=self.stopping or "exit",
            )
            facts["log"] = dict(facts["log"], size=os.fstat(self.log).st_size)
            killed = status == signal.SIGKILL if not exited else status == 128 + signal.SIGKILL
            failed = not exited or status != 0
            judged = self.oom.judge(facts["memory_cgroup"], killed, bool(self.stopping), failed)
            if self.container and (killed or failed and not self.stopping):
                judged = self.container.judge_oom(judged, facts["memory_enforced"])
            facts["oom"], facts["oom_sure"], text = judged
            facts["message"] = facts["message"] or text or trouble_of(self.directory, facts)
            failpoint("before_ended")
            self.save(durable=True)
            failpoint("before_reap")
        self.replica_over = True

    # -- stopping --

    def read_control(self, data: bytes) -> None:
        """Read a poke from serve. It repeats the deadline, for the disk may be too full for stop.json."""
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError):  # half a line, or not written by serve
                if line.startswith(b"stop "):
                    self.begin_stop("stop", finite_float(line[5:].decode("ascii")))

    def check_stop(self, now: float) -> None:
        """Begin a stop if one was ordered, or if the timeout has passed."""
        deadline = read_deadline(self.directory)
        if deadline is not None:
            self.begin_stop("stop", deadline)
        timeout, started = self.timeout_s, self.facts["mono_started"]
        if timeout and started and now >= started + timeout and not self.stopping:
            self.facts["message"] = "ran into its timeout of %g s" % timeout
            self.begin_stop("timeout", now + self.facts.get("grace_s", 0))

    def begin_stop(self, cause: str, deadline: float) -> None:
        """Send SIGTERM to all processes of the run; SIGKILL follows at the deadline."""
        if self.stopping:
            self.deadline = min(self.deadline, deadline)
            return
        if self.replica_over:
            return
        unheard = self.container is not None and not self.container.is_up_at_a_stop()
        self.stopping, self.deadline = cause, 0.0 if unheard else deadline
        self.facts.update(stopping=cause, stopping_at=time.time())
        if self.facts["phase"] == "running":
            self.save()
        self.search_by_mark = self.search_by_mark or bool(self.facts.get("web_access"))
        self.look_at_shared_memory()
        signal_all(self.stopped_processes, (signal.SIGTERM, signal.SIGCONT))
        self.continue_init()
        failpoint("between_term_and_kill")

    def stopped_processes(self) -> List[Process]:
        """The processes that a stop is for: of a container its programs, not its engine, which would kill them."""
        return self.container.programs(all_processes()) if self.container else self.living_processes()

    def living_processes(self) -> List[Process]:
        """All living processes of this run that can be found: our descendants, its cgroup, and those with its mark."""
        everyone = all_processes()
        pids = descendants({os.getpid()}, everyone) | cgroup_pids(self.facts["cgroup"])
        if self.search_by_mark:
            pids |= marked(self.facts["mark"], everyone)
        orphan = self.orphan
        if orphan and orphan.pid in everyone and everyone[orphan.pid].ticks == orphan.ticks:
            pids |= {orphan.pid} | descendants({orphan.pid}, everyone)
        if self.container:
            pids |= self.container.processes(everyone)
        if self.init_pid and not self.kill_init:
            pids.discard(self.init_pid)  # it ends by itself, once it has reported how the replica ended
        return [everyone[pid] for pid in pids if pid in everyone and everyone[pid].state not in "ZX"]

    def finish(self) -> None:
        """Kill until no process is left, prove it, and close the run."""
        self.look_at_shared_memory()
        self.search_by_mark = (
            self.search_by_mark or bool(self.facts.get("web_access")) or os.getppid() != self.parent
        )
        began, pause = time.monotonic(), 0.002
        if self.container:
            self.search_by_mark = self.search_by_mark or self.container.is_elsewhere
            left = self.container.remove(self.reap, lambda: freeze_and_kill(self.living_processes))
            add_message(self.facts, left)
        while True:
            self.reap()
            if self.is_empty():
                break
            if self.facts["cgroup"]:
                try_write(os.path.join(self.facts["cgroup"], "cgroup.kill"), "1")
            denied = freeze_and_kill(self.living_processes)
            self.continue_init()
            self.reap()
            time.sleep(pause)
            self.kill_init = self.replica_over or time.monotonic() > began + INIT_REPORTS_S
            if time.monotonic() > began + 10:
                pause = 2.0
                self.report_survivors(denied)
            else:
                pause = min(0.05, pause * 1.2)
        self.close()

    def is_empty(self) -> bool:
        """The proof: the kernel knows no child of ours, the cgroup is empty, and no other process carries the mark."""
        if not self.no_children or cgroup_pids(self.facts["cgroup"]):
            return False
        # All of /proc is read only where a process could be outside our tree.
        return not self.search_by_mark or not self.living_processes()

    def report_survivors(self, denied: List[Denied]) -> None:
        """Some processes cannot be killed. Name them; the run stays open and holds its GPUs until they are gone."""
        rows = describe_survivors(self.living_processes(), denied)
        if rows[:20] != self.facts["survivors"]:
            self.facts["survivors"] = rows[:20]
            self.save()

    # -- closing --

    def close(self) -> None:
        """No process is left: release what the run held, then write so. In this order, or the next run meets a busy
        GPU."""
        facts = self.facts
        remove_cgroups(facts)
        kill_leftovers_on_gpus(facts)
        self.held.unlock_gpus()
        facts["survivors"] = []
        self.hypertune.finish()
        facts["metrics"] = read_last(self.home.base, self.directory, facts)
        if facts["phase"] in ("claimed", "running"):
            (_, state, _, text), ordered = self.progress(), read_deadline(self.directory) is not None
            found = Found(self.container, self.log, state, text, bool(self.stopping), ordered)
            explain_no_exit(facts, found)
            if facts["why"] == "lost":
                facts["ended_at"] = time.time() if facts["started_at"] else None
        add_message(facts, sweep_shared_memory(self.directory))
        facts.update(phase="closed", closed_at=time.time())
        size = os.fstat(self.log).st_size if self.log >= 0 else facts["log"].get("size", 0)
        facts["log"] = dict(facts["log"], size=size, final=True)
        for name in SECRETS:
            unlink(os.path.join(self.directory, name))
        failpoint("before_closed")
        self.save()
        failpoint("after_closed")
        clean_directory(self.directory)
        self.remove_scratch()  # last: it may be large, and nobody waits for it

    def close_unstarted(self, why: str, message: str, refusal: str | None = None) -> None:
        """Close a run whose command was never executed."""
        self.held.unlock_gpus()
        remove_cgroups(self.facts)
        close_unstarted(self.facts, why, message, refusal)
        for name in SECRETS:
            unlink(os.path.join(self.directory, name))
        self.save(durable=True)
        clean_directory(self.directory)
        self.remove_scratch()

    def remove_scratch(self) -> None:
        """What stays of it is told after the end of the run, and is tried again when the run is forgotten."""
        stays = remove_scratch(self.facts)
        if stays:
            add_message(self.facts, stays)
            self.save()
