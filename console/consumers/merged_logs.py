"""Sends the lines of all replicas of a job through one socket, in the order of their times.

The viewer sends `{"begin": true}` for the newest lines. To go on after an interruption, it says before it which lines
it has: `{"from": {run: end of its last line, ...}}`, in several messages if they are many. It acknowledges characters
(`ack`), and says when it wants none (`pause`).

The server sends `{"runs": [...]}`, each with its number and where its lines begin, and `{"rows": [[number of the run,
end, time, text], ...]}`. A row may have a fifth element: "note" where it says what is not shown, "open" where the next
row of the run continues the line, "last" where the line has no end and nothing follows. Texts have the controls that
programs wrote, so that a page can show progress bars on their rows; what is written over comes twice a second at most.
A run that prints faster than the viewer takes it is skipped to its end, and a row says so.

Without `?replicas=`, and of more than MAX_REPLICAS, those are sent that matter most
(console/presenters/jobs/logs_together.py).

With `{"begin": true, "whole": true}` nothing is skipped, and lines come whole, as they end up: each log comes from its
begin, or from the place that was told, and a viewer that is slow gets everything later. Runs that were told are sent to
their end, and so are those between them and the newest run of their replica. `"since": S` begins at this second since
1970; with `"follow": false` the logs end with what is stored now. When all was sent, and nothing more can come, the
server says `{"over": true}`. While the job is over and some of its logs have not come whole, it says `{"waits":
[[replica, host, whether the host answers], ...]}`, and again when these change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import AsyncExitStack
from math import inf
from typing import Any
from urllib.parse import parse_qs

from django.contrib.auth.models import User
from django.http import Http404

from agents.infra.texts import said
from agents.models import HostStatus
from console.auth import access
from console.consumers.socket_lifecycle import GONE, TRY_AGAIN, BadMessage, Closed, Receive, Send, Socket
from console.live import registry, tails
from console.live.merged_lines import Line, LineFeeder, in_order
from console.live.merged_parts import PartFeeder
from console.presenters.jobs.logs_together import MAX_REPLICAS, LogsTogether, logs_together
from console.runtime.database_threads import in_database_thread
from jobs.logs import entries, reader
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import TERMINAL

# Logs that are followed at once. A replica that was started again has several, until the last bytes of the old ones
# have come.
MAX_RUNS = 4 * MAX_REPLICAS
# The most characters that are sent and not acknowledged.
WINDOW = 512 * 1024
# What is read of each log before the first lines are shown, and at least.
FIRST_BYTES, LEAST_BYTES = 512 * 1024, 4 * 1024
# What is read of one log at a time. A log that has more to send than MAX_BEHIND is skipped to its end.
STEP, MAX_BEHIND = 64 * 1024, 512 * 1024
# Lines are collected so long before they are sent, so that many logs cost little.
COLLECT_S = 0.1
PAST_ANY_END = 1 << 62
Wait = tuple[str, str, bool]
LOOK_EVERY_S = 1.0
# How often a viewer who wants everything is told what it waits for. What comes in less is no news.
WAITS_EVERY_S = 5.0


class _Log:
    """One log that is followed, until all of it was sent. It is a viewer of its tail."""

    patience_s = COLLECT_S

    def __init__(self, feeder: LineFeeder, wake: Callable[[], None]) -> None:
        self.feeder, self.wake = feeder, wake
        self.tail: tails.Tail | None = None
        self.followed = AsyncExitStack()
        # Lines that wait for those of other logs that were printed before them.
        self.waiting: deque[Line] = deque()
        # Where the log ends for this viewer, if it is not followed.
        self.until = PAST_ANY_END

    @property
    def is_behind(self) -> bool:
        """Whether more of it is stored than was taken."""
        return self.tail is not None and self.feeder.taken < min(self.tail.end, self.until)

    def offer(self, piece: tails.Piece, frame: bytes, times: bytes) -> bool:
        return False


class MergedLogSocket(Socket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.job_id = int(self.arguments["job_id"])
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        self.replicas = frozenset(name for name in query.get("replicas", [""])[0].split(",") if name)
        self._known: dict[str, int] = {}
        self._begun = self._paused = self._whole = False
        self._follow, self._since = True, 0.0
        self._sent = self._acked = 0
        self._watch = registry.TopicWatcher()
        self._logs: dict[str, _Log] = {}
        self._look_at = self._waits_at = 0.0
        # What the viewer waits for: at the last look, and as it was told.
        self._waits: tuple[list[Wait], list[Wait]] = ([], [])

    def authorize(self, user: User) -> None:
        access.job_or_404(user, "see_log", self.job_id)
        names = Job(pk=self.job_id).replicas.filter(name__in=self.replicas)
        if names.count() != len(self.replicas):
            raise Http404

    def recheck(self, user: User) -> None:
        access.job_or_404(user, "see_log", self.job_id)

    def recheck_key(self) -> Hashable:
        return "see_log", self.job_id

    def wake(self) -> None:
        self._watch.wake()

    async def on_message(self, message: dict[str, Any]) -> None:
        for run, end in _offsets(message).items():
            self._known[run] = end
        if len(self._known) > MAX_RUNS:
            raise BadMessage("from has too many runs.")
        if "ack" in message:
            self._acked = max(self._acked, min(_whole(message["ack"], "ack"), self._sent))
        self._paused = bool(message.get("pause", self._paused))
        if message.get("begin") and not self._begun:
            self._begun, self._whole = True, bool(message.get("whole"))
            self._follow = bool(message.get("follow", True))
            self._since = _seconds(message.get("since", 0))
        self.wake()

    async def serve(self) -> None:
        try:
            async with registry.of_this_loop().watch(f"job:{self.job_id}") as self._watch:
                while not self._begun:
                    await self._watch.wait()
                await self._choose()
                while True:
                    await self._follow_new_runs()
                    if self._whole:
                        if await self._send_in_order():
                            continue
                    else:
                        lines = [line for log in self._logs.values() for line in await self._lines(log)]
                        await self._send_rows(lines)
                    await self._watch.wait(self._patience_s())
                    await asyncio.sleep(COLLECT_S)
        finally:
            for log in self._logs.values():
                await log.followed.aclose()

    async def _choose(self) -> None:
        """Choose the logs that matter most, if there are too many."""
        found = await in_database_thread(_together, self.job_id, self.replicas)
        if found.left_out and self._whole:
            raise Closed(
                GONE,
                said(
                    "There are more than {number} logs at once. Choose replicas: ?replicas=NAME,NAME.",
                    number=MAX_REPLICAS,
                ),
            )
        if found.left_out:
            self.replicas = frozenset(found.names)

    def _patience_s(self) -> float:
        """How long the logs can be left alone if no hint comes."""
        if self._paused or self._sent - self._acked > WINDOW:  # what the viewer sends ends the wait
            return registry.POLL_EVERY_S
        now = asyncio.get_running_loop().time()
        due = (
            log.feeder.due_at()
            for log in self._logs.values()
            if log.tail is not None and isinstance(log.feeder, PartFeeder)
        )
        return min(max(min(due, default=inf) - now, 0.0), registry.POLL_EVERY_S)

    async def _follow_new_runs(self) -> None:
        """Look once a second for runs that have begun."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        first, self._look_at = not self._logs, now + LOOK_EVERY_S
        known = frozenset(self._known | self._logs.keys()) if self._whole else frozenset()
        rows = await in_database_thread(_runs, self.job_id, self.replicas, known)
        fresh = [row for row in rows if row["id"] not in self._logs]
        if sum(log.tail is not None for log in self._logs.values()) + len(fresh) > MAX_RUNS:
            raise Closed(TRY_AGAIN, said("Too many replicas were started again. Connecting anew."))
        share = max(FIRST_BYTES // max(len(fresh), 1), LEAST_BYTES)
        begins = {row["id"]: max(0, row["stored"] - share) if first else 0 for row in fresh}
        if self._whole:
            begins = await in_database_thread(_begins, fresh, self._since)
        begins |= {run: end for run, end in self._known.items() if run in begins}
        times = await in_database_thread(_times_at, begins)
        told = []
        for row in fresh:
            run = row["id"]
            feeder = LineFeeder if self._whole else PartFeeder
            log = _Log(feeder(len(self._logs), begins[run], times[run]), self.wake)
            self._logs[run] = log
            log.tail = await log.followed.enter_async_context(tails.follow(run, log))
            if not self._follow:
                log.until = row["stored"]
            # The first line may have begun before.
            if begins[run] > 0 and run not in self._known:
                await self._to_next_line(log)
            told.append({**row, "number": log.feeder.log, "from": log.feeder.end})
        if told:
            await self.send_json({"runs": told})

    async def _to_next_line(self, log: _Log) -> None:
        """Begin behind the first line feed, if there is one near."""
        piece = await self._piece(log)
        feed = piece.data.find(b"\n")
        if feed >= 0:
            log.feeder = type(log.feeder)(log.feeder.log, piece.start + feed + 1, log.feeder.at)

    async def _piece(self, log: _Log) -> tails.Piece:
        at = log.feeder.taken
        if log.tail is None:
            return tails.Piece(at, at, b"")
        return log.tail.from_ring(at, STEP) or await log.tail.read(at, STEP)

    async def _lines(self, log: _Log) -> list[Line]:
        """The new lines of one log, as far as the viewer can take them."""
        if log.tail is None or self._paused or self._sent - self._acked > WINDOW:
            return []
        now = asyncio.get_running_loop().time()
        if isinstance(log.feeder, PartFeeder) and now < log.feeder.rests_until:
            return []
        found: list[Line] = []
        behind = log.tail.end - log.feeder.taken
        if behind > MAX_BEHIND:
            why = f"{behind - STEP} bytes are not shown here: open the log of the replica."
            found += log.feeder.skip(log.tail.end - STEP, why)
            await self._to_next_line(log)
        for _ in range(MAX_BEHIND // STEP):
            piece = await self._piece(log)
            if piece.end == piece.start:
                break
            found += log.feeder.feed(piece)
        status = log.tail.status
        if status.complete and log.feeder.taken >= status.stored:
            found += log.feeder.finish()
            await log.followed.aclose()
            log.tail = None
        elif isinstance(log.feeder, PartFeeder):
            found += log.feeder.rest(now)
        return found

    async def _send_in_order(self) -> bool:
        """Send lines of all logs in the order of their times, and skip none. Returns whether more can be sent now.

        A line waits as long as another log has bytes that were not read yet: there may be earlier lines among them.
        """
        if self._paused or self._sent - self._acked > WINDOW:
            return False
        for log in self._logs.values():
            if not log.waiting:
                log.waiting.extend(await self._next_lines(log))
        behind = [log for log in self._logs.values() if log.is_behind]
        horizon = min((log.waiting[-1].at if log.waiting else log.feeder.at for log in behind), default=inf)
        lines: list[Line] = []
        for log in self._logs.values():
            while log.waiting and log.waiting[0].at <= horizon:
                lines.append(log.waiting.popleft())
        await self._send_rows(lines)
        if not behind and await self._is_over():
            await self.send_json({"over": True})
            raise Closed(1000, "")
        if not behind:
            await self._tell_waits()
        return bool(behind)

    async def _tell_waits(self) -> None:
        """Say which logs of a job that is over have not come whole: a silent host may keep the viewer waiting long."""
        now = asyncio.get_running_loop().time()
        if not self._follow or now < self._waits_at:
            return
        self._waits_at = now + WAITS_EVERY_S
        still = [run for run, log in self._logs.items() if log.tail is not None]
        found = await in_database_thread(_waits, still) if still else []
        before, told = self._waits
        if found == before and found != told:
            await self.send_json({"waits": found})
            told = found
        self._waits = found, told

    async def _next_lines(self, log: _Log) -> list[Line]:
        """The lines of the next piece of one log; at its end also the one that has no line feed."""
        if log.tail is None:
            return []
        piece = await self._piece(log)
        found = log.feeder.feed(piece) if piece.end > piece.start else []
        status = log.tail.status
        if log.feeder.taken >= log.until or (status.complete and log.feeder.taken >= status.stored):
            found += log.feeder.finish()
            await log.followed.aclose()
            log.tail = None
        return found

    async def _is_over(self) -> bool:
        """Whether nothing more will come: all logs were sent, and no run can begin any more."""
        if any(log.tail is not None or log.waiting for log in self._logs.values()):
            return False
        return not self._follow or await in_database_thread(
            _all_seen, self.job_id, self.replicas, set(self._logs)
        )

    async def _send_rows(self, lines: Iterable[Line]) -> None:
        ordered = in_order(lines)
        if not ordered:
            return
        rows: list[list[object]] = []
        for line in ordered:
            rows.append(
                [line.log, line.end, round(line.at, 3), line.text, *([line.kind] if line.kind else [])]
            )
            self._sent += len(line.text) + 1
        await self.send_json({"rows": rows, "sent": self._sent})


def _together(job_id: int, replicas: frozenset[str]) -> LogsTogether:
    return logs_together(Job.objects.get(pk=job_id), replicas)


def _runs(job_id: int, replicas: frozenset[str], known: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """The newest run of each replica, or of the chosen ones; the runs that are known, and those after them."""
    rows = Run.objects.filter(job=job_id, held=False).order_by(
        "replica__pool", "replica__index", "attempt", "number"
    )
    if replicas:
        rows = rows.filter(replica__name__in=replicas)
    fields = ("id", "replica__name", "attempt", "number", "host__name", "log_stored")
    newest: dict[str, list[dict[str, Any]]] = {}
    for row in rows.values(*fields):
        of_replica = newest.setdefault(row["replica__name"], [])
        # A run that nobody knows is left out when there is a newer one.
        if not any(one["id"] in known for one in of_replica):
            of_replica.clear()
        of_replica.append(row)
    return [
        {
            "id": row["id"],
            "replica": name,
            "attempt": row["attempt"],
            "start": row["number"],
            "host": row["host__name"],
            "stored": row["log_stored"],
        }
        for name, of_replica in newest.items()
        for row in of_replica
    ]


def _begins(rows: list[dict[str, Any]], since: float) -> dict[str, int]:
    """Where each log begins for a viewer who wants everything, or everything since a time."""
    if not since:
        return {row["id"]: 0 for row in rows}
    # A byte before: if that is the end of a line, the line behind it is whole.
    found = {row["id"]: reader.offset_at(Run(pk=row["id"]), since) for row in rows}
    return {row["id"]: max(0, min(found[row["id"]], row["stored"]) - 1) for row in rows}


def _all_seen(job_id: int, replicas: frozenset[str], seen: set[str]) -> bool:
    """Whether the job is over, and each log of it that is wanted was sent to its end."""
    if not Job.objects.filter(pk=job_id, state__in=TERMINAL).exists():
        return False
    rows = _runs(job_id, replicas, frozenset(seen))
    return all(row["id"] in seen for row in rows)


def _waits(runs: list[str]) -> list[Wait]:
    """Those of jobs that are over: their replicas, their hosts, and whether these answer."""
    rows = Run.objects.filter(pk__in=runs, job__state__in=TERMINAL).order_by(
        "replica__pool", "replica__index"
    )
    found = rows.values_list("replica__name", "host__name", "host__status")
    return [(replica, host, status == HostStatus.UP) for replica, host, status in found]


def _times_at(begins: dict[str, int]) -> dict[str, float]:
    """When the bytes at these offsets were printed."""
    rows = Run.objects.only("started_at", "created_at").in_bulk(begins)
    return {run: entries.time_at(rows[run], offset) if run in rows else 0.0 for run, offset in begins.items()}


def _offsets(message: dict[str, Any]) -> dict[str, int]:
    found = message.get("from", {})
    if not isinstance(found, dict) or not all(run.isprintable() for run in found):
        raise BadMessage("from is not a list of runs with offsets.")
    return {run: _whole(end, "from") for run, end in found.items()}


def _seconds(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e11:
        raise BadMessage("since is not a number of seconds.")
    return float(given)


def _whole(number: object, name: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise BadMessage(f"{name} is not a whole number.")
    return number
