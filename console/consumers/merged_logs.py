"""Sends the lines of all replicas of a job through one socket, in the order of their times.

The viewer sends `{"begin": true}` for the newest lines. To go on after an interruption, it says before it which lines
it has: `{"from": {run: end of its last line, ...}}`, in several messages if they are many. It acknowledges characters
(`ack`), and says when it wants none (`pause`).

The server sends `{"runs": [...]}`, each with its number and where its lines begin, and `{"rows": [[number of the run,
end, time, text], ...]}`; a row with a fifth element says what is not shown. A run that prints faster than the viewer
takes it is skipped to its end, and a row says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs

from django.contrib.auth.models import User
from django.http import Http404

from agents.infra.texts import said
from console.auth import access
from console.consumers.socket_lifecycle import GONE, BadMessage, Closed, Receive, Send, Socket
from console.live import registry, tails
from console.live.merged_lines import Line, LineFeeder, in_order
from console.runtime.database_threads import in_database_thread
from jobs.logs import entries
from jobs.models import Job, Run

MAX_RUNS = 128
# The most characters that are sent and not acknowledged.
WINDOW = 512 * 1024
# What is read of each log before the first lines are shown, and at least.
FIRST_BYTES, LEAST_BYTES = 512 * 1024, 4 * 1024
# What is read of one log at a time. A log that has more to send than MAX_BEHIND is skipped to its end.
STEP, MAX_BEHIND = 64 * 1024, 512 * 1024
# Lines are collected so long before they are sent, so that many logs cost little.
COLLECT_S = 0.1
LOOK_EVERY_S = 1.0


class _Log:
    """One log that is followed, until all of it was sent. It is a viewer of its tail."""

    patience_s = COLLECT_S

    def __init__(self, feeder: LineFeeder, wake: Callable[[], None]) -> None:
        self.feeder, self.wake = feeder, wake
        self.tail: tails.Tail | None = None
        self.followed = AsyncExitStack()

    def offer(self, piece: tails.Piece, frame: bytes, times: bytes) -> bool:
        return False


class MergedLogSocket(Socket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.job_id = int(self.arguments["job_id"])
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        self.replicas = frozenset(name for name in query.get("replicas", [""])[0].split(",") if name)
        self._known: dict[str, int] = {}
        self._begun = self._paused = False
        self._sent = self._acked = 0
        self._watch = registry.TopicWatcher()
        self._logs: dict[str, _Log] = {}
        self._look_at = 0.0

    def authorize(self, user: User) -> None:
        access.get_or_404(user, "see_log", Job.objects.select_related("project"), pk=self.job_id)
        names = Job(pk=self.job_id).replicas.filter(name__in=self.replicas)
        if names.count() != len(self.replicas):
            raise Http404

    def recheck(self, user: User) -> None:
        access.get_or_404(user, "see_log", Job.objects.select_related("project"), pk=self.job_id)

    def recheck_key(self) -> Hashable:
        return "see_log", self.job_id

    def wake(self) -> None:
        self._watch.wake()

    async def on_message(self, message: dict[str, Any]) -> None:
        for run, end in _offsets(message).items():
            self._known[run] = end
        if len(self._known) > 4 * MAX_RUNS:
            raise BadMessage("from has too many runs.")
        if "ack" in message:
            self._acked = max(self._acked, min(_whole(message["ack"], "ack"), self._sent))
        self._paused = bool(message.get("pause", self._paused))
        self._begun = self._begun or bool(message.get("begin"))
        self.wake()

    async def serve(self) -> None:
        try:
            async with registry.of_this_loop().watch(f"job:{self.job_id}") as self._watch:
                while not self._begun:
                    await self._watch.wait()
                while True:
                    await self._follow_new_runs()
                    lines = [line for log in self._logs.values() for line in await self._lines(log)]
                    await self._send_rows(lines)
                    await self._watch.wait()
                    await asyncio.sleep(COLLECT_S)
        finally:
            for log in self._logs.values():
                await log.followed.aclose()

    async def _follow_new_runs(self) -> None:
        """Look once a second for runs that have begun."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        first, self._look_at = not self._logs, now + LOOK_EVERY_S
        rows = await in_database_thread(_runs, self.job_id, self.replicas)
        fresh = [row for row in rows if row["id"] not in self._logs]
        if sum(log.tail is not None for log in self._logs.values()) + len(fresh) > MAX_RUNS:
            raise Closed(
                GONE,
                said(
                    "There are more than {number} logs at once. Choose replicas: ?replicas=NAME,NAME.",
                    number=MAX_RUNS,
                ),
            )
        share = max(FIRST_BYTES // max(len(fresh), 1), LEAST_BYTES)
        begins = {row["id"]: max(0, row["stored"] - share) if first else 0 for row in fresh}
        begins |= {run: end for run, end in self._known.items() if run in begins}
        times = await in_database_thread(_times_at, begins)
        told = []
        for row in fresh:
            run = row["id"]
            log = _Log(LineFeeder(len(self._logs), begins[run], times[run]), self.wake)
            self._logs[run] = log
            log.tail = await log.followed.enter_async_context(tails.follow(run, log))
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
            log.feeder = LineFeeder(log.feeder.log, piece.start + feed + 1, log.feeder.at)

    async def _piece(self, log: _Log) -> tails.Piece:
        at = log.feeder.taken
        if log.tail is None:
            return tails.Piece(at, at, b"")
        return log.tail.from_ring(at, STEP) or await log.tail.read(at, STEP)

    async def _lines(self, log: _Log) -> list[Line]:
        """The new lines of one log, as far as the viewer can take them."""
        if log.tail is None or self._paused or self._sent - self._acked > WINDOW:
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
        return found

    async def _send_rows(self, lines: Iterable[Line]) -> None:
        ordered = in_order(lines)
        if not ordered:
            return
        rows: list[list[object]] = []
        for line in ordered:
            rows.append([line.log, line.end, round(line.at, 3), line.text, *([True] if line.note else [])])
            self._sent += len(line.text) + 1
        await self.send_json({"rows": rows, "sent": self._sent})


def _runs(job_id: int, replicas: frozenset[str]) -> list[dict[str, Any]]:
    """The newest run of each replica, or of the chosen ones."""
    rows = Run.objects.filter(job=job_id, held=False).order_by(
        "replica__pool", "replica__index", "attempt", "number"
    )
    if replicas:
        rows = rows.filter(replica__name__in=replicas)
    fields = ("id", "replica__name", "attempt", "number", "host__name", "log_stored")
    newest = {row["replica__name"]: row for row in rows.values(*fields)}
    return [
        {
            "id": row["id"],
            "replica": name,
            "attempt": row["attempt"],
            "start": row["number"],
            "host": row["host__name"],
            "stored": row["log_stored"],
        }
        for name, row in newest.items()
    ]


def _times_at(begins: dict[str, int]) -> dict[str, float]:
    """When the bytes at these offsets were printed."""
    rows = Run.objects.only("started_at", "created_at").in_bulk(begins)
    return {run: entries.time_at(rows[run], offset) if run in rows else 0.0 for run, offset in begins.items()}


def _offsets(message: dict[str, Any]) -> dict[str, int]:
    found = message.get("from", {})
    if not isinstance(found, dict) or not all(run.isprintable() for run in found):
        raise BadMessage("from is not a list of runs with offsets.")
    return {run: _whole(end, "from") for run, end in found.items()}


def _whole(number: object, name: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise BadMessage(f"{name} is not a whole number.")
    return number
