"""The metrics of runs, serve's half: passes over what programs report, and the journals to the console.

The console asks for what follows an offset, once. The answer comes when there is something: a piece of the journal, or
its end. Nothing is read of a run that nobody asks for, and a run whose program reports nothing costs a look at two
names a second. When a run ends, its last pass begins at once, unless its keeper has made it.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import Any, Dict, Iterable, List, Tuple

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.files import whole
from agents.runner.metrics.collect import Pass, since_of
from agents.runner.metrics.journal import committed, read_piece
from agents.runner.metrics.places import SOURCES, SPOOL, may_have_reports, may_use_directories, own_path
from agents.runner.outbox import Outbox
from agents.runner.runs.facts import Facts
from agents.runner.runs.known import Run, Runs
from agents.runner.wire import Message, encode

# About a thousand reports: the console makes a row of each, in one transaction.
PIECE_BYTES = 64 * 1024
# The pause between two passes over the run's own files; and over the directories of its program, where it gets longer
# while nothing is found.
PASS_S, DIRECTORIES_S, MOST_DIRECTORIES_S = 2.0, 5.0, 60.0
PASS_DEADLINE_S = 60.0
MAX_PASSES = 2
# After so many passes that failed at the end of a run, its own directories are left out.
MAX_TRIES = 3
NOTHING = [(0, 0), (0, 0)]


class Asked:
    """A run whose metrics the console asks for."""

    def __init__(self, run: Run, now: float) -> None:
        self.run = run
        self.start = 0
        self.is_answered = True
        self.size, is_final, self.chain = committed(run.directory)
        # Its keeper reads to the end a moment before it closes the run, and the console takes no end before that.
        self.is_final = is_final and run.closed
        self.names_directories = os.path.exists(os.path.join(run.directory, SOURCES))
        self.stamps: Any = NOTHING
        self.due = 0.0
        self.directories_pause = DIRECTORIES_S
        self.directories_due = now + self.directories_pause
        self.is_busy = False
        self.has_begun_last = False
        self.deadline = 0.0
        self.failed = 0

    def holds_place(self, now: float) -> bool:
        """Whether a pass is under way. One that hangs on a dead disk, and cannot be killed, keeps nobody waiting."""
        return self.is_busy and now < self.deadline

    def local_stamps(self) -> List[Tuple[int, int]]:
        """What tells that something was reported: of the two files in the run's own directory."""
        found = []
        for path in (os.path.join(self.run.directory, SPOOL), own_path(self.run.directory)):
            try:
                stat = os.lstat(path)
                found.append((stat.st_size, stat.st_mtime_ns))
            except OSError:
                found.append((0, 0))
        return found

    def is_waiting(self) -> bool:
        """Whether its run has ended and the last pass is still to be made."""
        return self.run.closed and not self.is_final and not self.is_busy


class MetricsPull:
    """Handles the frame `metrics_pull`."""

    def __init__(self, runs: Runs, out: Outbox, background: BackgroundTasks) -> None:
        self.runs, self.out, self.background = runs, out, background
        self.asked: Dict[str, Asked] = {}

    def on_pull(self, message: Message, payload: bytes) -> None:
        start = message["from"]
        if type(start) is not int or start < 0:
            raise ValueError("from must be an offset")
        run = self.runs.known(message)
        if run.run not in self.asked:
            self.asked[run.run] = Asked(run, time.monotonic())
        asked = self.asked[run.run]
        asked.start, asked.is_answered = start, False
        if asked.is_waiting():
            self._look(asked, time.monotonic())
        self._answer(asked)

    def ended(self, runs: Iterable[Run]) -> None:
        """These runs have ended: whoever asks for their metrics waits for no pause between two passes."""
        now = time.monotonic()
        for run in runs:
            asked = self.asked.get(run.run)
            if asked is not None and asked.run is run and asked.is_waiting():
                if not asked.failed and not asked.has_begun_last:
                    asked.due = now
                self._look(asked, now)

    def tick(self, now: float) -> None:
        for name, asked in list(self.asked.items()):
            if self.runs.by_name.get(name) is not asked.run:
                del self.asked[name]  # forgotten
            elif not asked.is_final and not asked.is_busy:
                self._look(asked, now)

    def _look(self, asked: Asked, now: float) -> None:
        """Begin a pass if there may be something new."""
        facts = asked.run.facts
        if facts is None or now < asked.due:
            return
        if asked.run.closed:
            asked.size, asked.is_final, asked.chain = committed(asked.run.directory)
            if asked.is_final:  # its keeper has made the last pass
                self._answer(asked)
                return
        if sum(each.holds_place(now) for each in self.asked.values()) >= MAX_PASSES:
            return
        if asked.run.closed:
            base = self.runs.require_home().base
            if facts["metrics"] is False or not may_have_reports(base, asked.run.directory, facts):
                asked.is_final = True  # nothing to read, and nothing was read
                # Where the fact of its end has said so, nobody waits for an answer.
                asked.is_answered = asked.is_answered or facts["metrics"] is False
                self._answer(asked)
                return
            self._begin(asked, facts, is_over=True, with_directories=asked.failed < MAX_TRIES)
        elif facts["started_at"] is not None:
            stamps = asked.local_stamps()
            are_directories_due = now >= asked.directories_due
            if are_directories_due:
                asked.directories_due = now + asked.directories_pause
                are_directories_due = self._may_use_directories(asked, facts)
            if stamps != asked.stamps or are_directories_due:
                asked.stamps = stamps
                self._begin(asked, facts, is_over=False, with_directories=are_directories_due)

    def _may_use_directories(self, asked: Asked, facts: Facts) -> bool:
        """Whether its program may write into directories of its own."""
        return asked.names_directories or may_use_directories(
            self.runs.require_home().base, asked.run.directory, facts
        )

    def _begin(self, asked: Asked, facts: Facts, is_over: bool, with_directories: bool) -> None:
        directory, work = asked.run.directory, str(facts.get("work") or "")
        since = since_of(facts)

        def act() -> Dict[str, Any]:
            return Pass(directory, work, since).collect(is_over, with_directories)

        def done(answer: Any) -> None:
            self._passed(asked, answer, with_directories)
            self.ended([each.run for each in self.asked.values()])

        asked.deadline = time.monotonic() + PASS_DEADLINE_S
        asked.has_begun_last = is_over
        asked.is_busy = self.background.start("metrics of %s" % asked.run.run, act, done, PASS_DEADLINE_S)

    def _passed(self, asked: Asked, answer: Any, with_directories: bool) -> None:
        now = time.monotonic()
        asked.is_busy = False
        if not isinstance(answer, dict):
            asked.failed += 1
            asked.due = now + PASS_S * asked.failed
            asked.stamps = None
            return
        asked.failed = 0
        asked.size = whole(answer.get("size"))
        asked.is_final = answer.get("final") is True and asked.run.closed
        asked.chain = str(answer.get("chain") or "")
        asked.due = now + (0.0 if answer.get("more") and not answer.get("locked") else PASS_S)
        if answer.get("more"):
            asked.stamps = None
        if with_directories:
            asked.directories_pause = (
                DIRECTORIES_S if answer.get("found") else min(asked.directories_pause * 2, MOST_DIRECTORIES_S)
            )
            asked.directories_due = now + asked.directories_pause
        self._answer(asked)

    def _answer(self, asked: Asked) -> None:
        if asked.is_answered:
            return
        run = asked.run
        data = read_piece(run.directory, asked.start, asked.size, PIECE_BYTES)
        if data:
            packed = zlib.compress(data, 1)
            z = len(packed) < len(data)
            head = {"t": "metrics", "run": run.run, "from": asked.start, "to": asked.start + len(data)}
            self.out.bulk(encode(dict(head, z=int(z)), packed if z else data))
        asked.is_answered = bool(data) or asked.is_final
        if asked.is_final and asked.start + len(data) >= asked.size:
            # Behind the last piece, which is no control message: nobody has to ask once more.
            end = {"t": "metrics_end", "run": run.run, "size": asked.size, "digest": asked.chain}
            self.out.bulk(encode(end))
