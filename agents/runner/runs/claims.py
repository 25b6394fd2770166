"""Claims: a run's directory is made once, by its start or by a stop that came before it."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Any, Dict

from agents.runner.failpoints import failpoint
from agents.runner.files import (
    FULL,
    disk_floor,
    free_bytes,
    fsync_directory,
    make_host_spares,
    read_deadline,
    read_json,
    spend_host_spare,
    take_lock,
    write_file,
)
from agents.runner.outbox import Outbox
from agents.runner.runs.facts import Facts, close_unstarted, new_facts, save_facts
from agents.runner.runs.keepers import Keepers
from agents.runner.runs.known import Run, Runs
from agents.runner.runs.orders import Refused, unpack_order
from agents.runner.wire import Message, seal_of


class Claims:
    """Handles the frames `start` and `stop`."""

    def __init__(self, runs: Runs, out: Outbox) -> None:
        self.runs, self.out = runs, out
        self.keepers = Keepers(runs.umask)
        # Whether disk set aside for a full disk was used: it is set aside again as soon as there is room.
        self.spares_spent = False

    def on_start(self, message: Message, payload: bytes) -> None:
        name = message["run"]
        home = self.runs.require_home()
        directory = home.run(name)
        self.runs.check_owner()
        if name in self.runs.forgotten:
            facts = close_unstarted(
                new_facts(name), "tombstone", "this run was here before and was forgotten"
            )
            self.out.send(dict(facts, t="fact"))
            return
        try:
            self.make_directory(directory)
        except FileExistsError:
            run = self.runs.find(name)
            run.refresh()
            self.runs.send_facts(run)
            return
        failpoint("after_mkdir")
        lock = take_lock(os.path.join(directory, "lock"))
        failpoint("after_lock")
        if lock < 0:
            return  # a newer serve has found this claim just now and is closing it
        run = self.runs.find(name, fresh=True)
        if free_bytes(directory) < disk_floor():
            try:
                self.refuse_full(run, seal_of(message))
            finally:
                os.close(lock)
            return
        if self.spares_spent:
            self.spares_spent = False
            make_host_spares(home.base)
        document: Dict[str, Any] | Refused
        try:
            order = unpack_order(payload, bool(message.get("z")))
            document, run.work_key = order, order.get("work_key")
        except Refused as refused:
            document = refused
        try:
            self.keepers.keep(home, name, seal_of(message), document, lock)
        finally:
            os.close(lock)

    def make_directory(self, directory: str) -> None:
        """Make the claim. On a full disk a spare is given up for it, so that a refusal or tombstone can still be
        written."""
        try:
            os.mkdir(directory, 0o700)
        except OSError as error:
            if error.errno not in FULL or not self.spend_spare():
                raise
            os.mkdir(directory, 0o700)

    def save(self, directory: str, facts: Facts, durable: bool = False) -> None:
        try:
            save_facts(directory, facts, durable)
        except OSError as error:
            if error.errno not in FULL or not self.spend_spare(directory):
                raise
            save_facts(directory, facts, durable)

    def spend_spare(self, directory: str = "") -> bool:
        self.spares_spent = True
        return spend_host_spare(self.runs.require_home().base, directory)

    def refuse_full(self, run: Run, seal: str) -> None:
        """Refuse a start on a full disk. If not even the refusal fits, remove the claim and answer with an error."""
        message = "less than %d MB are free at %s" % (disk_floor() >> 20, self.runs.require_home().base)
        try:
            facts = close_unstarted(new_facts(run.run, seal), "refused", message, "disk_full")
            self.save(run.directory, facts)
        except OSError:
            self.runs.unwatch(run)
            del self.runs.by_name[run.run]
            shutil.rmtree(run.directory, ignore_errors=True)
            raise
        self.runs.check(run)

    def on_stop(self, message: Message, payload: bytes) -> None:
        grace = message["grace_s"]
        if isinstance(grace, bool) or not isinstance(grace, (int, float)):
            raise ValueError("grace_s must be a number")
        name = message["run"]
        directory = self.runs.require_home().run(name)
        self.runs.check_owner()
        try:
            self.make_directory(directory)
        except FileExistsError:
            pass
        else:
            self.make_tombstone(name, directory, seal_of(message))
            return
        run = self.runs.find(name)
        run.refresh()
        if run.closed:
            self.runs.send_facts(run)
            return
        deadline = time.monotonic() + min(max(0.0, grace), 1e7)
        run.stop = deadline if run.stop is None else min(run.stop, deadline)
        found = read_json(os.path.join(directory, "stop.json"))
        if found and found.get("boot_id") == self.runs.boot_id:
            run.stop = min(run.stop, read_deadline(directory) or run.stop)
        try:
            document = {"deadline": run.stop, "boot_id": self.runs.boot_id}
            write_file(os.path.join(directory, "stop.json"), json.dumps(document).encode())
        except OSError:
            pass  # a full disk: the poke carries the deadline too, and is repeated
        self.poke_keeper(run)

    def make_tombstone(self, name: str, directory: str, seal: str) -> None:
        """A stop came before its start: the directory now blocks that start for ever."""
        failpoint("after_tombstone")
        lock = take_lock(os.path.join(directory, "lock"))
        try:
            if lock >= 0:
                text = "stopped before it was started"
                facts = close_unstarted(new_facts(name, seal), "tombstone", text)
                self.save(directory, facts, durable=True)
                fsync_directory(self.runs.require_home().runs)
        finally:
            if lock >= 0:
                os.close(lock)
        run = self.runs.find(name)
        run.refresh()
        self.runs.send_facts(run)

    def poke_keeper(self, run: Run) -> None:
        try:
            fd = os.open(os.path.join(run.directory, "control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # no keeper listens (yet): it will read stop.json, and the next tick pokes again
        try:
            os.write(fd, ("stop %r\n" % run.stop).encode())
        except OSError:
            pass
        finally:
            os.close(fd)
