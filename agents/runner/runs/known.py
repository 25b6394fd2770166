"""The runs of this host as serve knows them."""

from __future__ import annotations

import collections
import json
import os
import time
from typing import Any, Deque, Dict, List, Set, Tuple

from agents.runner.failpoints import failpoint
from agents.runner.files import read_plain, take_lock, write_for_host
from agents.runner.forks import fork_detached
from agents.runner.home import Home, is_run_id
from agents.runner.linux import IN_DONT_FOLLOW, IN_MODIFY, IN_MOVED_TO, IN_Q_OVERFLOW, Inotify, boot_id
from agents.runner.logs.shipper import LogShipper
from agents.runner.outbox import Hangup, Outbox
from agents.runner.runs.facts import Facts, close_after_reboot, load_facts, new_facts
from agents.runner.runs.held_resources import remove_cgroups
from agents.runner.runs.keeper import Keeper
from agents.runner.runtimes.containers import remove_later
from agents.runner.wire import MAX_HEADER, Message, WireError

OUT_BYTES = 192 * 1024  # log frames waiting for the pipe: few, so that a fact never waits behind megabytes


class Run:
    """What serve knows of one run."""

    def __init__(self, run: str, directory: str, fresh: bool) -> None:
        self.run, self.directory = run, directory
        self.facts: Facts | None = None
        self.stamp: Tuple[int, int] = (0, 0)
        self.sent_stamp: Tuple[int, int] = (0, 0)  # the stamp of the facts that were sent last
        self.shipper = LogShipper(run, directory, fresh)
        self.watch = self.log_watch = -1
        self.stop: float | None = None
        self.work_key: Any = None  # from its order, until it is in the facts

    def refresh(self) -> None:
        """Read the facts again if the file was replaced."""
        try:
            found = os.stat(os.path.join(self.directory, "facts.json"))
        except OSError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        facts = load_facts(self.directory) if stamp != self.stamp else None
        if facts is not None:
            self.facts, self.stamp = facts, stamp
            self.shipper.closed = self.closed
            self.shipper.final_size = facts["log"].get("size", 0)

    def renew_shipper(self) -> None:
        """Begin anew with this run's log: its files hold something unexpected."""
        self.shipper.close()
        closed, size = self.shipper.closed, self.shipper.final_size
        self.shipper = LogShipper(self.run, self.directory)
        self.shipper.closed, self.shipper.final_size = closed, size

    def reported(self) -> Facts | None:
        """Its facts, with the size of its log in offsets on the wire: a log that was cut may be shorter than what was
        sent of it, and is not complete for that."""
        shift = self.shipper.shift()
        if self.facts is None or not shift:
            return self.facts
        log = self.facts["log"]
        return dict(self.facts, log=dict(log, size=log["size"] + shift))

    @property
    def claimed(self) -> bool:
        return self.facts is not None and self.facts["phase"] == "claimed"

    @property
    def closed(self) -> bool:
        return self.facts is not None and self.facts["phase"] == "closed"


class Runs:
    """All runs of this host: watched, reported, and their logs sent in turn."""

    def __init__(self, out: Outbox, umask: int) -> None:
        self.out, self.umask = out, umask
        self.home: Home | None = None
        self.by_name: Dict[str, Run] = {}
        self.active: Deque[Run] = collections.deque()
        self.forgotten: Set[str] = set()
        self.ended: List[Run] = []  # those whose end was sent since somebody looked here
        self.inotify = Inotify()
        self.watches: Dict[int, Run] = {}
        self.base_watch = -1
        self.token = ""
        self.boot_id = boot_id()

    def take_over(self, home: Home, forgotten: Set[str]) -> None:
        """Make this connection the newest one: older ones see its token and end."""
        self.home, self.forgotten = home, forgotten
        self.token = "%d.%s" % (os.getpid(), os.urandom(8).hex())
        write_for_host(home.base, os.path.basename(home.owner), self.token.encode())
        self.base_watch = self.inotify.watch(home.base, IN_MOVED_TO)

    def require_home(self) -> Home:
        assert self.home is not None
        return self.home

    def send_logs(self) -> None:
        """Send log frames of each run in turn, for as long as the pipe takes them, but not for long."""
        now = began = time.monotonic()
        for _ in range(len(self.active)):
            if self.out.bulk_bytes >= OUT_BYTES or now - began > 0.002:
                return
            run = self.active.popleft()
            if now >= run.shipper.not_before:
                try:
                    frame = run.shipper.frame(now, alone=not self.active, link_idle=not self.out.waiting())
                except (ArithmeticError, LookupError, OSError, TypeError, ValueError, WireError) as error:
                    # Its files may hold anything. When it is pulled again, it begins with what is left of them.
                    frame = None
                    if not isinstance(error, OSError):
                        run.renew_shipper()
                    self.out.send(
                        {
                            "t": "error",
                            "about": "log",
                            "run": run.run,
                            "message": "%s" % (error or repr(error)),
                        }
                    )
                if frame is None:
                    continue
                if frame:
                    self.out.bulk(frame)
                now = time.monotonic()
            self.active.append(run)

    def queue_log(self, run: Run) -> None:
        """This run's log may have something to send."""
        if run.shipper.pulled and not run.shipper.end_sent and run not in self.active:
            self.active.append(run)

    def read_events(self) -> None:
        """Handle the inotify events of the watched directories and logs."""
        touched: Dict[int, int] = {}
        for watch, mask in self.inotify.read():
            touched[watch] = touched.get(watch, 0) | mask
            if mask & IN_Q_OVERFLOW:
                for run in self.by_name.values():
                    self.check(run)
        for watch, mask in touched.items():
            if watch == self.base_watch:
                self.check_owner()
            elif watch in self.watches:
                run = self.watches[watch]
                if mask & IN_MOVED_TO:
                    self.check(run)
                else:
                    self.queue_log(run)

    def check(self, run: Run, later: bool = False) -> None:
        """Report this run's facts if they changed, and go on with its log.

        A run that is only claimed is not reported at once: in milliseconds it will have started, and that report says
        both. If it has not, the next tick calls this with `later`.
        """
        run.refresh()
        if run.stamp != run.sent_stamp and (later or not run.claimed):
            failpoint("before_reply")
            self.send_facts(run)
        self.watch_log(run)
        self.queue_log(run)

    def watch_log(self, run: Run) -> None:
        """Watch the log itself as soon as it is there, and not all that is written beside it: what counts of that is
        moved there."""
        if run.watch >= 0 and run.log_watch < 0:
            path = os.path.join(run.directory, "log")
            run.log_watch = self.inotify.watch(path, IN_MODIFY | IN_DONT_FOLLOW)
            if run.log_watch >= 0:
                self.watches[run.log_watch] = run

    def send_facts(self, run: Run) -> None:
        facts = run.reported()
        if facts is not None:
            run.sent_stamp = run.stamp
            self.out.send(dict(facts, t="fact"))
            if run.closed:
                self.unwatch(run)
                self.ended.append(run)

    def send_inventory(self) -> None:
        """Send the inventory: every run that has a directory here, in pages."""
        page: List[Facts] = []
        size = 0
        for name in sorted(os.listdir(self.require_home().runs)):
            if not is_run_id(name):
                continue
            run = self.find(name)
            run.refresh()
            self.check_alive(run)
            run.sent_stamp = run.stamp
            facts = run.reported() or dict(new_facts(name), claimed_at=None, boot_id=None)
            length = len(json.dumps(facts)) + 1
            if size + length > MAX_HEADER - 1024:
                self.out.send({"t": "inventory", "runs": page, "last": False})
                page, size = [], 0
            page.append(facts)
            size += length
        self.out.send({"t": "inventory", "runs": page, "last": False})
        self.out.send({"t": "inventory", "runs": [], "last": True})

    def find(self, name: str, fresh: bool = False) -> Run:
        """The run of that name, watched while it is not closed. Does not check that its directory exists."""
        if name not in self.by_name:
            run = self.by_name[name] = Run(name, self.require_home().run(name), fresh)
            run.watch = self.inotify.watch(run.directory, IN_MOVED_TO)
            if run.watch >= 0:
                self.watches[run.watch] = run
            run.refresh()  # after the watch was set, so that no change is missed in between
            if run.closed:
                self.unwatch(run)
        return self.by_name[name]

    def unwatch(self, run: Run) -> None:
        for watch in (run.watch, run.log_watch):
            self.inotify.unwatch(watch)
            self.watches.pop(watch, None)
        run.watch = run.log_watch = -1

    def known(self, message: Message) -> Run:
        """The run that a message names; ValueError if the name is not a run id or no directory is here."""
        directory = self.require_home().run(message["run"])
        if not os.path.isdir(directory):
            raise ValueError("there is no such run here")
        return self.find(message["run"])

    def check_owner(self) -> None:
        """End this connection if a newer one has taken over."""
        try:
            current = read_plain(self.require_home().owner, 200)
        except OSError:
            current = b""
        if current != self.token.encode():
            self.out.send({"t": "error", "about": "serve", "message": "a newer connection has taken over"})
            self.out.drain()
            raise Hangup("superseded")

    def check_alive(self, run: Run) -> None:
        """Close a run whose lock is free although it is not closed: its keepers are dead."""
        if run.closed:
            return
        try:
            lock = take_lock(os.path.join(run.directory, "lock"))
        except OSError:
            return  # its directory is gone, or we have no descriptors: the next tick looks again
        if lock < 0:
            return
        try:
            facts = load_facts(run.directory)
            if facts is not None and facts["phase"] != "closed" and facts["boot_id"] != self.boot_id:
                remove_cgroups(facts, 0)  # in a container that was started again they may still exist
                close_after_reboot(run.directory, facts)
                remove_later(run.directory, facts["runtime"])
            elif facts is None or facts["phase"] != "closed":
                keeper = Keeper(self.require_home(), run.run, self.umask)
                title = "trainyard-mender %s" % run.run
                fork_detached(keeper.close_orphaned, run.directory, {lock}, title)
                return
        except OSError:
            return  # no process, no disk: the next tick tries again
        finally:
            os.close(lock)
        self.check(run)
