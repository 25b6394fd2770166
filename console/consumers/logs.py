"""Sends a replica's log through a socket: bytes from a cursor on, with at most WINDOW of them unacknowledged.

The viewer says where to begin (`from`, `tail`, `at`), how many bytes it has taken (`ack`), when it wants none
(`pause`), and whether it wants to know when they were printed (`times`). The server sends JSON headers for everything
except bytes (a jump, a gap, another run, a new status, times), and binary frames that each continue where the last one
ended. The cursor is (run, offset): a viewer that reconnects after an interruption sends `{"run": ..., "from": ...}` and
misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from django.contrib.auth.models import User
from django.http import Http404
from django.utils import timezone

from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import said
from console.auth import access
from console.consumers.socket_lifecycle import GONE, BadMessage, Closed, Receive, Send, Socket
from console.live import registry, tails
from console.runtime.database_threads import in_database_thread
from jobs.logs import reader
from jobs.logs.live_end import Status
from jobs.models import Replica, Run

# The most bytes that are sent and not acknowledged: the cost of a viewer that never reads.
WINDOW = 256 * 1024
# The last bytes of a run may come after its restart has begun. The viewer waits for them, but not longer than this.
LAST_BYTES_S = 10.0
NOT_STARTED = said("This replica has not been started yet.")

_LABEL = ("attempt", "number", "host__name")
_replica = SelectStatement(
    lambda: Replica.objects.filter(job=Parameter("job"), name=Parameter("name")).order_by().values_list("pk")
)
_label = SelectStatement(
    lambda: (
        Run.objects.filter(pk=Parameter("run"), replica=Parameter("replica")).order_by().values_list(*_LABEL)
    )
)
_newest = SelectStatement(
    lambda: (
        Run.objects.filter(replica=Parameter("replica"), held=False)
        .order_by("-attempt", "-number")
        .values_list("pk", *_LABEL)[:1]
    )
)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where to continue reading: one of `offset`, `tail` and `at`, in the named run or in the newest one."""

    run: str = ""
    offset: int | None = None
    tail: int | None = None
    at: float | None = None
    # Repeated in the header of the jump, so that the viewer knows to which request the bytes belong.
    id: int | None = None


class RunLabel(NamedTuple):
    """What distinguishes a run from the other runs of its replica, as the header names it."""

    attempt: int
    number: int
    host: str


class NoSuchRun(Closed):
    def __init__(self) -> None:
        super().__init__(GONE, "There is no such run of this replica.")


class LogSocket(Socket):
    patience_s = 0.0

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.job_id = int(self.arguments["job_id"])
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        # With a named run the socket stays with it. Without one it follows the newest run through each restart.
        self.named_run = query.get("run", [""])[0]
        self._replica_id = 0
        self._place: LogPosition | None = None
        self._paused = False
        self._times = False
        # True while sending waits for an acknowledgement. At other times an acknowledgement wakes nobody.
        self._waits_for_ack = False
        self._sent = self._acked = 0
        self._watch = registry.TopicWatcher()
        # The run's log is sent up to `_cursor`. `_up_to_date`: all of it is sent, and the next bytes may come by
        # `offer`. `_header_up_to_date`: the last header, too, is up to date.
        self._cursor = 0
        self._up_to_date = False
        self._header_up_to_date = False
        self._header_sent_at = 0.0

    def authorize(self, user: User) -> None:
        job = access.job_or_404(user, "see_log", self.job_id)
        found = _replica.column(job=job.pk, name=self.arguments["replica"])
        if not found or (self.named_run and not _rows_of(self.named_run, found[0])):
            raise Http404
        self._replica_id = found[0]

    def recheck(self, user: User) -> None:
        """The job and the replica stay the same, so only the permission is checked again."""
        access.job_or_404(user, "see_log", self.job_id)

    def recheck_key(self) -> Hashable:
        return "see_log", self.job_id

    async def on_message(self, message: dict[str, Any]) -> None:
        if "ack" in message:
            # At most what was sent: a client cannot widen the window by acknowledging too much.
            self._acked = max(self._acked, min(_whole(message, "ack"), self._sent))
            if len(message) == 1 and not self._waits_for_ack:
                return
        if "pause" in message:
            self._paused = bool(message["pause"])
        self._times = bool(message.get("times", self._times))
        if message.keys() & {"from", "tail", "at"}:
            self._place = _requested_position(message)
        self.wake()

    def wake(self) -> None:
        self._watch.wake()

    def offer(self, piece: tails.Piece, frame: bytes, times: bytes) -> bool:
        """Send new bytes of the live end at once, without this socket's task, if that waits at the live end."""
        if not self._up_to_date or self._cursor != piece.start or self._paused or self._place is not None:
            return False
        if (
            self._sent + len(piece.data) - self._acked > WINDOW
            or self._write is None
            or not self._write(times + frame if self._times else frame)
        ):
            return False
        self._cursor = piece.end
        self._sent += len(piece.data)
        if self._header_up_to_date:
            self._header_up_to_date = False
            self.wake()
        return True

    async def serve(self) -> None:
        async with registry.of_this_loop().watch(f"job:{self.job_id}") as self._watch:
            while self._place is None:
                await self._watch.wait()
            run_id, restarted = self._place.run or self.named_run, False
            while True:
                run_id, label = await self._labelled(run_id) if run_id else await self._newest()
                async with tails.follow(run_id, self) as tail:
                    if tail is None:
                        raise NoSuchRun
                    run_id = await self._stream(run_id, label, tail, restarted)
                restarted = self._place is None

    async def _labelled(self, run_id: str) -> tuple[str, RunLabel]:
        """The run and its label, if it is one of this replica: a client may name any run."""
        rows = await in_database_thread(_rows_of, run_id, self._replica_id)
        if not rows:
            raise NoSuchRun
        return run_id, RunLabel(*rows[0])

    async def _newest(self) -> tuple[str, RunLabel]:
        """Wait until the replica has a run. Returns the newest one."""
        sent = False
        while True:
            rows = await in_database_thread(_newest_rows_of, self._replica_id)
            if rows:
                return rows[0][0], RunLabel(*rows[0][1:])
            if not sent:
                await self.send_json({"waiting": self.in_language(NOT_STARTED)})
                sent = True
            await self._watch.wait()

    async def _stream(self, run_id: str, label: RunLabel, tail: tails.Tail, restarted: bool) -> str:
        """Send one run's log until another run must be shown. Returns the id of that run."""
        self._cursor, sent = 0, None
        if restarted:
            sent = await self._send_header(tail, self._cursor, **label._asdict(), restart=True)
        while True:
            place = self._place
            if place is not None:
                target = place.run or self._default_run(place, tail.status)
                if target != run_id:
                    return target
                self._place = None
                self._cursor = await self._offset_of(place, run_id, tail.status.stored)
                sent = await self._send_header(tail, self._cursor, **label._asdict(), jump=True, id=place.id)
            elif sent is None or self._is_news(sent, tail.status):
                sent = await self._send_header(tail, self._cursor)
            room = 0 if self._paused else min(WINDOW - (self._sent - self._acked), tails.MAX_FRAME_BYTES)
            self._waits_for_ack = room <= 0
            piece = tail.from_ring(self._cursor, room) or await tail.read(self._cursor, room)
            self._cursor = piece.end
            if piece.gap:
                await self.send_json({"run": run_id, "gap": piece.gap, "at": piece.start, "to": piece.end})
            elif piece.data:
                self._sent += len(piece.data)
                if self._times and piece.at:
                    await self.send_json(piece.times(run_id))
                await self.send_bytes(piece.data)
            elif tail.status.newest_run == run_id:
                await self._wait_at_live_end(sent == tail.status)
            elif room > 0 and await self._continues_in_newer_run(tail, self._cursor):
                return tail.status.newest_run
            else:
                await self._watch.wait()

    async def _wait_at_live_end(self, header_up_to_date: bool) -> None:
        """Wait until woken. In the meantime `offer` may send bytes. A new size alone waits for STATUS_EVERY_S."""
        self._up_to_date, self._header_up_to_date = True, header_up_to_date
        if header_up_to_date:
            await self._watch.hinted()
        else:
            await self._watch.wait(tails.STATUS_EVERY_S)
        self._up_to_date = False

    def _default_run(self, place: LogPosition, status: Status) -> str:
        """Without a named run, `tail` means the newest run, and an offset means the run that is shown now."""
        return status.newest_run if place.tail is not None and not self.named_run else status.run

    async def _offset_of(self, place: LogPosition, run_id: str, stored: int) -> int:
        if place.tail is not None:
            return max(0, stored - place.tail)
        if place.at is not None:
            return min(await in_database_thread(reader.offset_at, Run(pk=run_id), place.at), stored)
        return min(place.offset or 0, stored)

    async def _send_header(self, tail: tails.Tail, cursor: int, **more: object) -> Status:
        status = tail.status
        self._header_sent_at = asyncio.get_running_loop().time()
        await self.send_json(
            {**document(status), "held": self.in_language(status.held), "at": cursor, **more}
        )
        return status

    def _is_news(self, sent: Status, status: Status) -> bool:
        if status == sent:
            return False
        if (status.phase, status.complete, status.newest_run) != (sent.phase, sent.complete, sent.newest_run):
            return True
        return asyncio.get_running_loop().time() - self._header_sent_at >= tails.STATUS_EVERY_S

    async def _continues_in_newer_run(self, tail: tails.Tail, cursor: int) -> bool:
        """Whether this run has no more bytes and a newer run exists."""
        status = tail.status
        if self.named_run or status.newest_run == status.run or cursor < status.stored:
            return False
        return (
            status.complete
            or await in_database_thread(_run_age_s, status.newest_run, timezone.now()) > LAST_BYTES_S
        )


def document(status: Status) -> dict[str, object]:
    matches = status.digest_here == status.digest_host if status.digest_here and status.digest_host else None
    return {
        "run": status.run,
        "size": status.size,
        "stored": status.stored,
        "phase": status.phase,
        "complete": status.complete,
        "digest_here": status.digest_here,
        "digest_host": status.digest_host,
        "matches": matches,
        "newest_run": status.newest_run,
        "held": status.held,
    }


def _rows_of(run_id: str, replica_id: int) -> list[tuple[Any, ...]]:
    return _label(run=run_id, replica=replica_id)


def _newest_rows_of(replica_id: int) -> list[tuple[Any, ...]]:
    return _newest(replica=replica_id)


def _run_age_s(run_id: str, now: datetime) -> float:
    created_at = Run.objects.filter(pk=run_id).values_list("created_at", flat=True).first()
    return (now - created_at).total_seconds() if created_at else 0.0


def _requested_position(message: dict[str, Any]) -> LogPosition:
    run = message.get("run", "")
    if not isinstance(run, str) or not run.isprintable():
        raise BadMessage("run is not the name of a run.")
    mark = _whole(message, "id") if "id" in message else None
    if "from" in message:
        return LogPosition(run, offset=_whole(message, "from"), id=mark)
    if "tail" in message:
        return LogPosition(run, tail=_whole(message, "tail"), id=mark)
    at = message["at"]
    if not isinstance(at, int | float) or not 0 <= at < 1e11:
        raise BadMessage("at is not a number of seconds.")
    return LogPosition(run, at=float(at), id=mark)


def _whole(message: dict[str, Any], key: str) -> int:
    number = message[key]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise BadMessage(f"{key} is not a whole number.")
    return number
