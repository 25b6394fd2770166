"""The work of the keepers of a run: they start it and stay with it until it is closed, also without a console."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import marshal
import mmap
import os
import socket
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from agents.runner.cache.install_log import head_of_log
from agents.runner.failpoints import failpoint
from agents.runner.files import clean_directory, fsync_directory, make_spares, read_deadline, write_file
from agents.runner.forks import close_all_but, has_no_child
from agents.runner.home import Home
from agents.runner.linux import become_subreaper, booted_at, die_with_parent, retitle
from agents.runner.logs.budget import LogBudget
from agents.runner.metrics.places import make_places
from agents.runner.outputs.directories import with_directories
from agents.runner.processes import read_process
from agents.runner.reduction.files_on_hosts import put_files
from agents.runner.reduction.numpy_check import check_numpy
from agents.runner.runs.containment import cgroup_path
from agents.runner.runs.facts import Facts, close_unstarted, load_facts, save_facts
from agents.runner.runs.lifecycle import RunLifecycle
from agents.runner.runs.orders import REDUCER, Refused, build_env, parse_order
from agents.runner.runs.replica import Replica, ReplicaSetup
from agents.runner.runs.scratch import scratch_path
from agents.runner.runtimes.adapters import command_of, is_of_this_host
from agents.runner.runtimes.packages import with_packages

# What the outer keeper says when it has made a claim durable.
SYNCED = b"s"


class Told(NamedTuple):
    """What the outer keeper is told before a replica's process exists, to go on if the inner one is killed."""

    facts: Facts
    timeout_s: float | None
    log_budget_mb: int
    gpus: int  # so many of the locks that come with it are of GPUs
    oom: Tuple[int | None, int | None]


class Keeper(RunLifecycle):
    """One run, as its keepers know it: `inner` is all that the inner one does, unless it is killed. Then `take_over`
    goes on in the outer one, if it was told enough. `close_orphaned` closes a run that nobody knows enough of.

    `page`: memory that both keepers and the replica share. `outer`: the socket to the outer keeper.
    """

    def __init__(
        self,
        home: Home,
        run: str,
        umask: int = 0o022,
        seal: str = "",
        page: mmap.mmap | None = None,
        outer: socket.socket | None = None,
    ) -> None:
        super().__init__(home, run, umask, seal)
        self.page, self.outer = page, outer

    def inner(self, document: Dict[str, Any] | Refused) -> None:
        """In the inner keeper, which holds the run's lock and has no child: start the run, and supervise it until it is
        closed."""
        failpoint("keeper_born")
        if os.path.exists(os.path.join(self.directory, "facts.json")):
            return  # another serve found the claim without a keeper and closed it: never start it now
        try:
            if isinstance(document, Refused):
                raise document
            self.prepare(document)
        except Refused as refused:
            self.close_unstarted("refused", str(refused), refused.refusal)
            return
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.close_unstarted("refused", "%s" % error, "disk_full" if full else "exec_failed")
            return
        failpoint("after_order")
        if not has_no_child():
            self.leave_children()
        self.tell_outer()
        self.parent = os.getppid()
        self.spawn()
        self.watch_children()
        self.watch_shared_memory()
        self.hypertune.watch()
        self.log_budget = self.open_log_budget(fresh=True)
        stop = read_deadline(self.directory)
        self.wait_for_sync()
        failpoint("before_gate")
        if stop is None:
            self.gated_replica().open_gate()
            failpoint("after_gate")
        self.gated_replica().close_gate()
        self.supervise()

    def leave_children(self) -> None:
        """A program that was asked for something hangs in the kernel. Go on in a fresh fork: whose child a process is
        tells whether it is the run's. This process only waits, and ends as the fork does.
        """
        mine = os.getpid()
        fork = os.fork()
        if fork:
            close_all_but({0, 1, 2})
            _, status = os.waitpid(fork, 0)
            os._exit(1 if status else 0)
        # The outer keeper sees only the process that waits, and takes over when that is killed.
        die_with_parent()
        if os.getppid() != mine:
            os._exit(1)
        become_subreaper()
        self.search_by_mark = True

    client: Tuple[List[str], Dict[str, str]] | None = None  # that of a container engine, and its environment

    def prepare(self, document: Dict[str, Any]) -> None:
        """Do all that can be refused or can fail before the replica's process is forked."""
        document = with_directories(document, self.home)
        order = self.order = with_packages(parse_order(document), self.directory)
        self.timeout_s, self.log_budget_mb = order.timeout_s, order.log_budget_mb
        directory, facts = self.directory, self.facts
        facts["mark"] = "%s:%s" % (os.urandom(8).hex(), order.mark)
        facts["work_key"] = order.work_key
        facts["tmp"] = scratch_path(facts["mark"])
        make_spares(directory)
        save_facts(directory, facts)
        self.open_log()  # serve looks for it when the order is moved in
        write_file(os.path.join(directory, "order.json"), json.dumps(document).encode())
        if order.reduction:
            put_files(self.home.base)
        make_places(directory, order.env, order.runtime, facts["tmp"])
        self.held.acquire(order, facts)
        if self.find_container():
            # Whoever closes the run after all keepers, or the power, were lost has to know what to remove.
            save_facts(directory, facts, durable=True)
            self.client = command_of(order, directory, self.run, self.held.work, facts)
        elif order.reduction == REDUCER:
            check_numpy(order.command[0], build_env(order, directory, self.held.work, facts))
        facts.update(
            cpus=order.cpus,
            grace_s=order.grace_s,
            gpus=order.gpus,
            port=order.port,
            web_access=order.web_access,
        )
        self.oom.begin()
        self.open_channels()
        self.begin_log()

    def open_log(self) -> None:
        path = os.path.join(self.directory, "log")
        self.log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def begin_log(self) -> None:
        """Write what stands before the first byte of the program. Once a run: nobody prepares one again."""
        assert self.order is not None
        if self.facts["environment"]:
            head = head_of_log(self.facts["environment"], self.order.install_log)
            with contextlib.suppress(OSError):  # on a full disk the program finds out
                os.write(self.log, head)

    def open_channels(self) -> None:
        control = os.path.join(self.directory, "control")
        os.mkfifo(control, 0o600)
        self.control = os.open(control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.page is not None
        self.replica = Replica(self.page)

    def spawn(self) -> None:
        assert self.order is not None
        facts, work = self.facts, self.held.work
        command, env = self.client or (self.order.command, build_env(self.order, self.directory, work, facts))
        # What the engine's processes leave in the directory that they are started in is nothing for the user's.
        place = self.directory if self.container else work
        groups = (facts["cgroup"], facts["memory_cgroup"])
        silent = self.container is not None and self.container.client_is_silent
        setup = ReplicaSetup(self.log, place, groups, self.umask, self.run, silent)
        if self.order.pid_namespace and not self.container:
            self.replica_pid, why = self.gated_replica().spawn_in_namespace(command, env, setup)
            if self.replica_pid:
                self.enter_namespace()
                self.save()  # before the gate: should all keepers be killed, this process has to be ended
                return
            facts["namespace_refused"] = why
        elif self.order.pid_namespace and is_of_this_host(facts["runtime"]):
            facts["namespace_refused"] = "containers of Apptainer have no PID namespace of their own"
        self.replica_pid = self.gated_replica().spawn(command, env, setup)
        if self.container:
            self.container.client = self.replica_pid

    def tell_outer(self) -> None:
        """The outer keeper makes the claim durable then, while this one goes on."""
        assert self.order is not None and self.outer is not None
        order, gpus = self.order, len(self.held.gpu_locks)
        told = Told(self.facts, order.timeout_s, order.log_budget_mb, gpus, self.oom.counts())
        channels = [self.log, self.control, self.gated_replica().started]
        fds = array.array("i", [*channels, *self.held.locks()])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was killed
            self.outer.sendmsg([marshal.dumps(tuple(told))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

    def open_log_budget(self, fresh: bool = False) -> LogBudget:
        return LogBudget(self.directory, self.log, self.log_budget_mb, fresh)

    def wait_for_sync(self) -> None:
        """Make sure that the claim is durable.

        The outer keeper makes it durable meanwhile. If it has not yet, this one does: the outer keeper may have been
        killed or stopped, or not have got a core. If both do it at once, they wait for the same write.
        """
        assert self.outer is not None
        synced = b""
        with contextlib.suppress(OSError):
            synced = self.outer.recv(1, socket.MSG_DONTWAIT)
        if synced != SYNCED:
            fsync_directory(self.home.runs)

    def take_over(self, told: Told, fds: List[int], page: mmap.mmap) -> None:
        """The inner keeper was killed, and its children are ours now: go on from the facts and the recorded
        progress."""
        self.facts, self.timeout_s, self.log_budget_mb = told.facts, told.timeout_s, told.log_budget_mb
        self.oom.go_on(*told.oom)
        self.log, self.control, started, *locks = fds
        self.held.take_locks(locks, told.gpus)
        self.replica = Replica(page, started)
        found = load_facts(self.directory)
        # As long as only the claim is on disk, more was told: all that was prepared since.
        if found is not None and found["phase"] != "claimed":
            self.facts = found
        self.find_container()
        if self.facts["phase"] == "closed" or not os.path.isdir(self.directory):
            clean_directory(self.directory)
            return
        retitle("trainyard-keeper %s (second)" % self.run)
        self.watch_children()
        self.watch_shared_memory()
        self.hypertune.watch()
        self.log_budget = self.open_log_budget()
        self.wait_for_fork()
        self.replica_pid = self.progress()[0]
        if self.container:
            self.container.client = self.replica_pid
        if self.replica_pid and self.gated_replica().init_pid():
            self.enter_namespace()
        self.search_by_mark = True
        self.replica_over = self.facts["phase"] == "ended" or self.replica_pid == 0
        self.stopping = self.facts.get("stopping")
        if self.stopping:
            self.deadline = time.monotonic() + self.facts.get("grace_s", 0)
        self.supervise()

    def wait_for_fork(self) -> None:
        """The replica's process may be forked but not have recorded itself yet: wait for that, without reaping."""
        with contextlib.suppress(ChildProcessError):
            while True:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if self.progress()[0] or dead is not None:
                    return
                time.sleep(0.001)

    def close_orphaned(self) -> None:
        """In a fresh fork that holds the lock of a run whose keepers are both dead: kill what is left, and close the
        run."""
        found = load_facts(self.directory)
        if found is None:
            known = os.stat(self.directory).st_mtime > booted_at()
            close_unstarted(self.facts, "lost", "the runner died before anything was started")
            self.facts["never_started"] = True if known else None
            self.save(durable=True)
            clean_directory(self.directory)
            return
        self.facts, self.search_by_mark = found, True
        if found["phase"] == "closed":
            return
        become_subreaper()
        self.find_container()
        path = cgroup_path(self.run, found["mark"])
        if found["cgroup"] is None and path and os.path.isdir(path):
            found["cgroup"] = path  # it was made, but its keeper was killed before it wrote so
        path = cgroup_path(self.run, found["mark"], "memory")
        if found["memory_cgroup"] is None and path and os.path.isdir(path):
            found["memory_cgroup"] = path
        log = os.path.join(self.directory, "log")
        found["log"] = dict(found["log"], size=os.path.getsize(log) if os.path.exists(log) else 0)
        first = found["first"]  # the first process of its namespace: with it all others there end
        pid, ticks = first if first else (found["pid"] or 0, found["ticks"])
        orphan = read_process(pid)
        if orphan is not None and orphan.ticks == ticks:
            self.orphan = orphan
        self.finish()
