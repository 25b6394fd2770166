"""The process that follows a container of Docker: copies its output into the log of the run, and writes how it ended.

Docker keeps the output, so any of these processes may be killed: the next one leaves out what the log has already.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from typing import List, Set, Tuple

from agents.runner.files import read_plain, stored_number, take_lock, write_file
from agents.runner.processes import Process, read_process
from agents.runner.programs import Program, start_program

LOCK, BASE, PID, END = "container.lock", "container.base", "container.pid", "container.end"
# The beginning of the output. That of the log is freed while the run lives, once it was shipped.
HEAD = "container.head"
STATE = "{{.State.Status}} {{.State.Pid}} {{.State.ExitCode}}"
ANSWER_S = 20.0
# How long a container may be about to be made, although the client that makes it is not there any more.
MADE_S = 5.0
# How long the daemon may be away after the program has ended; while the program lives, it may be away for ever.
AWAY_S = 60.0
LOOK_S = 0.5
PIECE = 1 << 18
# So much of the beginning is compared before anything is left out.
COMPARED = 1 << 16
# How long the disk may be full before a piece of the output is given up, as a program's own `write` would.
FULL_S = 5.0
LOST = b"\ntrainyard: Docker has thrown away the older part of this output. Lines may be missing here.\n"
# How the client says that it has lost the daemon: on the output of errors, where the program's are too.
OWN_WORDS = re.compile(
    rb"(?:unexpected EOF|Error response from daemon: [^\n]*|error during connect: [^\n]*|Cannot connect to [^\n]*)\n\Z"
)
GONE, AWAY = "gone", "away"
OVER, ALIVE = ("exited", "dead", "removing"), ("running", "paused")
# How soon it is seen that a program has ended whose keepers are dead: the next run may wait for its GPUs.
HELD_LOOK_S = 0.05


class Abandoned(Exception):
    """The keepers of the run are dead: nobody needs its copies any more."""


class Rotated(Exception):
    """What Docker has kept does not begin where the output began."""


def look_at(program: str, name: str, patience_s: float) -> Tuple[str, int, int]:
    """(state, number of its first process, exit status) in the daemon's words; or GONE; or AWAY, if it does not
    answer."""
    command = [program, "container", "inspect", "--format", STATE, name]
    status, text = Program(command).answer(patience_s)
    words = text.split()
    if status == 0 and len(words) >= 3 and words[-1].lstrip("-").isdigit() and words[-2].isdigit():
        return words[-3], int(words[-2]), int(words[-1])
    return (GONE if "no such container" in text.lower() else AWAY), 0, 0


class Follower:
    """`parents`: the keepers of the run; when both are dead, this process copies no more."""

    def __init__(self, directory: str, program: str, name: str, log: int, parents: Set[int]) -> None:
        self.directory, self.program, self.name = directory, program, name
        self.log, self.parents = log, parents
        # Its output from `since` on begins at `base` in the log, with `head`. `since` is empty as long as that is all.
        self.base, self.since, self.head = 0, "", b""
        self.base_noted = self.head_noted = self.head_grows = True
        self.all_read = False

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def run(self) -> None:
        lock = take_lock(self.path(LOCK))
        if lock < 0:
            return  # another one follows it
        try:
            self.follow()
        except Abandoned:
            os.close(lock)
            self.hold()

    def follow(self) -> None:
        self.find_base()
        since, seen, pause = time.monotonic(), False, 0.02
        while True:
            self.check_keepers()
            state, pid, code = look_at(self.program, self.name, ANSWER_S)
            if state in OVER:
                self.copy()
                self.end(code)
                return
            if state in ALIVE:
                seen = True
                self.note_pid(pid)
                self.copy("--follow")
                since = time.monotonic()
            elif state == AWAY and self.program_lives():
                since = time.monotonic()
            elif self.is_lost(state, seen, time.monotonic() - since):
                self.end(None)
                return
            time.sleep(pause)
            pause = min(LOOK_S, pause * 2)

    def hold(self) -> None:
        """The locks that programs inherit are held by this process too, while the program lives."""
        first = self.first_process()
        while first is not None:
            found = self.first_process()
            if found is None or found.ticks != first.ticks:
                return
            time.sleep(HELD_LOOK_S)

    def is_lost(self, state: str, seen: bool, waited: float) -> bool:
        """Whether nobody will ever know how it ended."""
        if state == AWAY:
            return waited > AWAY_S
        return waited > MADE_S or (state == GONE and seen)

    def first_process(self) -> Process | None:
        """That of the container, while it lives."""
        found = read_process(stored_number(self.path(PID)))
        return found if found is not None and found.state not in "ZX" else None

    def program_lives(self) -> bool:
        return self.first_process() is not None

    def note_pid(self, pid: int) -> None:
        if pid:
            self.write(PID, b"%d" % pid)

    def end(self, code: int | None) -> None:
        if code is None and os.path.exists(self.path(END)):
            return  # a keeper has asked before it removed the container
        self.write(END, json.dumps({"code": code}).encode())

    def write(self, name: str, data: bytes) -> None:
        """A full disk is waited for: without this file nobody knows it."""
        while os.path.isdir(self.directory):
            with contextlib.suppress(OSError):
                write_file(self.path(name), data)
                return
            self.check_keepers()
            time.sleep(0.2)

    def find_base(self) -> None:
        """The size of the log when the first follower came: what stands before is not the container's."""
        size = os.fstat(self.log).st_size
        try:
            base, _, self.since = read_plain(self.path(BASE), 64).decode().partition(" ")
            self.base = int(base)
        except (OSError, ValueError):
            self.base = size
            self.write(BASE, b"%d" % size)
        if size < self.base:
            self.add(LOST[size - self.base :])  # it was about to be said
        try:
            self.head, self.head_grows = read_plain(self.path(HEAD), COMPARED), False
        except OSError:
            self.head, self.head_grows = os.pread(self.log, COMPARED, max(0, self.base)), True
        self.head_noted = not self.head_grows
        self.note()

    def note(self) -> None:
        """Write down what the next follower has to know. On a full disk it is tried again with the next output."""
        with contextlib.suppress(OSError):
            # Where a part of the output was given up, the beginning is not in the log as it was printed.
            if not self.head_noted and (len(self.head) == COMPARED or not self.base_noted):
                write_file(self.path(HEAD), self.head)
                self.head_noted = len(self.head) == COMPARED
            if not self.base_noted:
                write_file(self.path(BASE), ("%d %s" % (self.base, self.since)).strip().encode())
                self.base_noted = True

    def check_keepers(self) -> None:
        if os.getppid() not in self.parents:
            raise Abandoned

    # -- its output --

    def copy(self, *options: str) -> None:
        """Copy what the log has not yet; with `--follow` until the program has ended, or the daemon."""
        # A reader that was there until the program ended has lost nothing of what is thrown away.
        words = b"" if self.all_read and not options else LOST
        try:
            self.copy_from([*options])
        except Rotated:
            self.begin_anew(words)
            self.copy_from([*options])

    def begin_anew(self, words: bytes) -> None:
        """Go on with what was printed since the log got its last piece. It is noted first: should this process be
        killed before `words` are in the log, the next one says them."""
        self.since = self.last_piece_at()
        self.base = os.fstat(self.log).st_size + len(words)
        with contextlib.suppress(OSError):
            os.unlink(self.path(HEAD))
        self.write(BASE, ("%d %s" % (self.base, self.since)).encode())
        self.head, self.head_noted, self.head_grows = b"", True, False
        self.base_noted = True
        self.add(words)
        self.head_noted, self.head_grows = False, True

    def last_piece_at(self) -> str:
        """When a follower added to the log for the last time. The log itself is also changed where it is freed."""
        try:
            at = os.stat(self.path(LOCK)).st_mtime_ns
        except OSError:
            at = os.fstat(self.log).st_mtime_ns
        return "%d.%09d" % divmod(at, 10**9)

    def copy_from(self, options: List[str]) -> None:
        skip = max(0, os.fstat(self.log).st_size - self.base)
        self.all_read = False
        options = [*options, *(["--since", self.since] if self.since else [])]
        pid, fd = start_program([self.program, "logs", *options, self.name])
        held, ended = b"", False
        try:
            held = self.pour(fd, skip)
            ended = True
        finally:
            os.close(fd)
            if not ended:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        self.all_read = status == 0
        if self.all_read:
            self.add(held)

    def pour(self, fd: int, skip: int) -> bytes:
        """Copy all but the first bytes. Returns the last line, not copied, if it may be the client's own."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        left, head, held, compared = skip, b"", b"", not skip
        while True:
            if not poll.poll(LOOK_S * 1000):
                self.check_keepers()
                continue
            data = os.read(fd, PIECE)
            if not data:
                return held
            if not compared:
                head += data[: COMPARED - len(head)]
                if len(head) >= min(skip, COMPARED):
                    self.compare(head[: min(skip, COMPARED)])
                    compared = True
            part = data[left:]
            left -= len(data) - len(part)
            part = held + part
            own = OWN_WORDS.search(part)
            held = own.group() if own else b""
            self.add(part[: len(part) - len(held)])

    def compare(self, head: bytes) -> None:
        if not head.startswith(self.head[: len(head)]):
            raise Rotated

    def add(self, data: bytes) -> None:
        if not data:
            return
        if self.head_grows:
            self.head += data[: COMPARED - len(self.head)]
        until = time.monotonic() + FULL_S
        while data:
            try:
                data = data[os.write(self.log, data) :]
            except OSError:
                self.check_keepers()
                if time.monotonic() > until:
                    self.base -= len(data)  # it is given up: what the log has is by so much less
                    self.base_noted = False
                    break
                time.sleep(0.1)
        with contextlib.suppress(OSError):
            now = time.time()  # finer than the clock of the file system
            os.utime(self.path(LOCK), (now, now))
        self.note()
