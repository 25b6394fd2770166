"""The frames `prepare` and `unprepare`: starts the processes that prepare, and tells the console how far they are.

Each preparation has a directory, named by its kind and key. Its process (worker.py) holds `lock` there and writes
`state.json`. A serve that comes later finds both. If the process was killed, or the host was rebooted, nobody holds the
lock: then the state is LOST, and the console asks again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.files import take_lock, write_file
from agents.runner.forks import default_signals, fork_detached
from agents.runner.home import Home
from agents.runner.outbox import Outbox
from agents.runner.preparations.archive_names import give_left_names_back, left_names
from agents.runner.preparations.left_processes import sweep
from agents.runner.preparations.report import (
    CREDENTIALS,
    FAILED,
    HOST,
    LOST,
    MAX_MESSAGE,
    WORKING,
    read_state,
    state_path,
)
from agents.runner.processes import read_process, signal_process
from agents.runner.runs.orders import Refused, unpack_order
from agents.runner.wire import Message

MAX_SENT = 500
# How often names of images are looked for that a preparation took and could not give back.
NAMES_EVERY_S, NAMES_S = 600.0, 300.0
# The same of processes that a preparation left behind.
SWEEP_EVERY_S = 600.0


class Preparations:
    """The preparations of this deployment on this host."""

    def __init__(self, out: Outbox, background: BackgroundTasks, ended: Callable[[], None]) -> None:
        """`ended` is called when one is over."""
        self.out, self.background, self.ended = out, background, ended
        self.names_at = self.sweep_at = 0.0
        self.home: Home | None = None
        # Of those that are under way: what state.json looked like when it was last sent.
        self.active: Dict[Tuple[str, str], Tuple[int, int]] = {}

    def greet(self, home: Home) -> None:
        """Send the state of all that is here, the newest ones of very many."""
        self.home = home
        found: List[Tuple[float, str, str]] = []
        for name in os.listdir(home.preparations):
            kind, _, key = name.partition("-")
            try:
                found.append((os.stat(home.preparation(kind, key)).st_mtime, kind, key))
            except (OSError, ValueError):
                continue  # not ours
        for _, kind, key in sorted(found)[-MAX_SENT:]:
            self.send(kind, key)
        self.look_after_names(home)

    def on_prepare(self, message: Message, payload: bytes) -> None:
        """Start to prepare, unless a process is at it. `asked` counts how often the console asked anew: what is over is
        begun again only when it was."""
        kind, key = message["kind"], message["key"]
        directory = self.require_home().preparation(kind, key)
        try:
            self.begin(directory, message, payload)
        except (OSError, ValueError) as error:
            # Nothing can be written perhaps, so the console is told without a file. It would wait for ever otherwise.
            self.active.pop((kind, key), None)
            words = "it cannot be prepared here: %s" % (error or repr(error))
            told = {"state": FAILED, "asked": message["asked"], "fault": HOST, "message": words[:MAX_MESSAGE]}
            self.tell(kind, key, told)
            return
        self.active[kind, key] = (0, 0)
        self.look(kind, key)

    def begin(self, directory: str, message: Message, payload: bytes) -> None:
        try:
            what = unpack_order(payload, bool(message.get("z")))
        except Refused as refused:
            raise ValueError(str(refused)) from None
        os.makedirs(directory, 0o700, exist_ok=True)
        lock = take_lock(os.path.join(directory, "lock"))
        if lock >= 0:
            try:
                state = read_state(directory) or {"state": WORKING}
                if state["state"] == WORKING or state.get("asked") != message["asked"]:
                    self.start(message["kind"], message["key"], what, message["asked"], lock)
            finally:
                os.close(lock)

    def start(self, kind: str, key: str, what: Dict[str, Any], asked: int, lock: int) -> None:
        home = self.require_home()
        directory = home.preparation(kind, key)
        write_file(state_path(directory), json.dumps({"state": WORKING, "asked": asked}).encode())
        request = {"deployment": home.deployment, "kind": kind, "key": key, "what": what, "asked": asked}
        data = json.dumps(request).encode()

        def act() -> None:
            os.set_inheritable(lock, True)
            pid = os.getpid()
            write_file(os.path.join(directory, "pid"), b"%d" % pid)
            read, write = os.pipe()
            if os.fork() == 0:
                os.close(read)
                os.close(lock)
                view = memoryview(data)
                while view:
                    view = view[os.write(write, view) :]
                os._exit(0)
            os.close(write)
            os.dup2(read, 0)
            errors = os.open(os.path.join(directory, "errors"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(errors, 2)
            default_signals()
            os.chdir(directory)
            os.execv(sys.executable, [sys.executable, os.path.join(RUNNER_PLACE, sys.argv[0]), "prepare"])

        fork_detached(act, directory, {lock}, "trainyard-prepare %s %s" % (kind, key))

    def on_unprepare(self, message: Message, payload: bytes) -> None:
        """Nobody needs it: end the process that is at it. What is ready stays, as long as its kind keeps it."""
        kind, key = message["kind"], message["key"]
        directory = self.require_home().preparation(kind, key)
        state = read_state(directory)
        if state is not None and state["state"] == WORKING:
            self.end(directory)
            trash = os.path.join(self.require_home().trash, "%s-%s-%d" % (kind, key, os.getpid()))
            shutil.rmtree(trash, ignore_errors=True)
            os.rename(directory, trash)
            # Its process cannot find it here, nor make it anew.
            remove_credentials(trash)
        self.active.pop((kind, key), None)
        self.send(kind, key)

    def end(self, directory: str) -> None:
        try:
            with open(os.path.join(directory, "pid")) as file:
                process = read_process(int(file.read()))
        except (OSError, ValueError):
            return
        if process is not None and not is_free(directory):
            signal_process(process.pid, process.ticks, signal.SIGTERM)

    def tick(self) -> None:
        """Send what has changed."""
        for kind, key in list(self.active):
            self.look(kind, key)
        if self.home is not None and time.monotonic() >= self.names_at:
            self.look_after_names(self.home)
        is_due = self.home is not None and time.monotonic() >= self.sweep_at
        if is_due and self.background.start("sweep", sweep, lambda answer: None):
            self.sweep_at = time.monotonic() + SWEEP_EVERY_S

    def look_after_names(self, home: Home) -> None:
        """At the start, for the host may have been rebooted while an archive was loaded; and later again, for an engine
        may not work yet."""
        self.names_at = time.monotonic() + NAMES_EVERY_S
        if left_names(home):
            self.background.start("names", lambda: give_left_names_back(home), lambda answer: None, NAMES_S)

    def look(self, kind: str, key: str) -> None:
        directory = self.require_home().preparation(kind, key)
        try:
            found = os.stat(state_path(directory))
        except OSError:
            self.active.pop((kind, key), None)
            return
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self.active[kind, key] or is_free(directory):
            self.active[kind, key] = seen
            self.send(kind, key)

    def send(self, kind: str, key: str) -> None:
        """Send the state. One that its process left behind when it died is LOST."""
        directory = self.require_home().preparation(kind, key)
        over = is_free(directory)  # asked first: a process that ends meanwhile has written its end
        state = read_state(directory) or {"state": LOST}
        if state["state"] == WORKING and over:
            state = dict(state, state=LOST, fault=HOST, message=last_words(directory))
            remove_credentials(directory)
            self.sweep_at = 0.0  # what a job brought may have killed it
        elif state["state"] == WORKING:
            self.active.setdefault((kind, key), (0, 0))
        if state["state"] != WORKING and self.active.pop((kind, key), None) is not None:
            self.ended()
        self.tell(kind, key, state)

    def tell(self, kind: str, key: str, state: Dict[str, Any]) -> None:
        frame: Message = {"t": "prepared", "kind": kind, "key": key}
        for name in ("state", "asked", "done", "total", "unit", "message", "tail", "result", "fault"):
            frame[name] = state.get(name)
        self.out.send(frame)

    def require_home(self) -> Home:
        assert self.home is not None
        return self.home


# Where the runner was started: its own name on the command line is relative to that.
RUNNER_PLACE = os.getcwd()
_PLAIN = re.compile(r"[^\x20-\x7e]")


def remove_credentials(directory: str) -> None:
    """What a process that was killed could not remove itself (images.py)."""
    shutil.rmtree(os.path.join(directory, CREDENTIALS), ignore_errors=True)


def is_free(directory: str) -> bool:
    """Whether no process holds the lock, and so none is at it."""
    try:
        lock = take_lock(os.path.join(directory, "lock"))
    except OSError:
        return True
    if lock >= 0:
        os.close(lock)
    return lock >= 0


def last_words(directory: str) -> str:
    """Why the process ended before it was done, as far as it could say so."""
    try:
        with open(os.path.join(directory, "errors"), errors="replace") as file:
            lines = file.read(4096).strip().splitlines()
    except OSError:
        lines = []
    return "its process ended early%s" % (": " + _PLAIN.sub("?", lines[-1])[:200] if lines else "")
