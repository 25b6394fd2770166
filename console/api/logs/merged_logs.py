"""The entries of many logs in the order of their times, a page at a time.

Between two pages the client keeps the place of each log in the page token: the time of its next entry, and where it is.
So a log is opened when its turn comes, and nothing is read again that an earlier page went past.

Each log is opened once to find its first entry. That takes a step for each log, and a page may end after any step.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.logs import entries
from jobs.models import Run

SECOND = 1_000_000
# What a token may have, packed and unpacked. Ours have some 50 bytes a log before they are packed.
MAX_TOKEN, MAX_PLACES_SIZE = 128 * 1024, 1024 * 1024
# How many logs that were read to their end, and have grown since, are looked at before a page begins.
GROWN_FIRST = 50
Key = tuple[int, int, int]


class BadToken(ValueError):
    """The page token is none of ours, or belongs to another order."""


@dataclass(slots=True)
class Place:
    """Where reading of a log goes on. `at` is the time of its next entry: None if none was found.

    `offset`: before that, everything is known; from the newest on: where the next entry ends. None: nothing was read.
    `seen`: how much of the log was stored when no further entry was found, and whether it was whole. Empty: there will
    be none in this order.
    """

    at: int | None
    offset: int | None
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry, and its time in microseconds since 1970."""

    run: Run
    at: int
    entry: entries.Entry


class MergedLogs:
    """The logs of these runs from their places on, between two times. `step` does a small part of the work."""

    def __init__(
        self, runs: Iterable[Run], low: int, high: int, newest: bool, places: dict[str, Place]
    ) -> None:
        # By the text of the ids in entries: so entries of the same time are in the order of their ids.
        ordered = sorted(runs, key=lambda run: f"{run.pk}.")
        self._logs = [
            _Log(run, rank, low, high, newest, len(ordered), places.get(run.pk))
            for rank, run in enumerate(ordered)
        ]
        self._next = [(log.key(), log) for log in self._logs if log.place and log.place.at is not None]
        heapq.heapify(self._next)
        self._unread = deque(log for log in self._logs if log.place is None)
        self._grown = deque(log for log in self._logs if log.has_grown())
        self._grown_first = GROWN_FIRST

    def over(self) -> bool:
        return not (self._next or self._unread or self._grown)

    def step(self) -> Found | None:
        """Look for the next entry of one log, or take the next entry of all."""
        if self._unread:
            self._look(self._unread.popleft())
            return None
        if self._grown and (self._grown_first > 0 or not self._next):
            self._grown_first -= 1
            self._look(self._grown.popleft())
            return None
        _, log = heapq.heappop(self._next)
        found = log.take()
        self._queue(log)
        return found

    def places(self) -> dict[str, Place]:
        return {log.run.pk: log.place for log in self._logs if log.place is not None}

    def _look(self, log: _Log) -> None:
        log.advance()
        self._queue(log)

    def _queue(self, log: _Log) -> None:
        if log.place and log.place.at is not None:
            heapq.heappush(self._next, (log.key(), log))


class _Log:
    """One of the logs. It is open from the first entry that is looked for to the end of the page."""

    def __init__(
        self, run: Run, rank: int, low: int, high: int, newest: bool, together: int, place: Place | None
    ) -> None:
        self.run, self.place = run, place
        self._rank, self._low, self._high, self._newest, self._together = rank, low, high, newest, together
        self._stream: Iterator[entries.Entry] | None = None
        self._head: entries.Entry | None = None

    def __lt__(self, other: _Log) -> bool:
        return self._rank < other._rank

    def key(self) -> Key:
        """The place in the order. The newest come first by turning the signs."""
        assert self.place and self.place.at is not None
        key = (self.place.at, self._rank, self.place.offset or 0)
        return (-key[0], -key[1], -key[2]) if self._newest else key

    def has_grown(self) -> bool:
        return self.place is not None and self.place.seen not in ("", self._stored())

    def take(self) -> Found | None:
        """The next entry; None if it is not there any more."""
        if self._stream is None:
            self.advance()
        entry, at = self._head, self.place.at if self.place else None
        if entry is None or at is None:
            return None
        if not self._newest:
            self.place = Place(at, entry.end)
        self.advance()
        return Found(self.run, at, entry)

    def advance(self) -> None:
        """Find the next entry, and remember where it is."""
        offset = self.place.offset if self.place else None
        if self._stream is None:
            self._stream = self._opened(offset)
        self._head = next(self._stream, None)
        if self._head is None:
            self.place = Place(None, offset, "" if self._newest else self._stored())
            return
        at = round(self._head.at * SECOND)
        if (at < self._low) if self._newest else (at > self._high):
            self._head = None
            self.place = Place(None, offset)
        else:
            self.place = Place(at, self._head.end if self._newest else offset)

    def _opened(self, offset: int | None) -> Iterator[entries.Entry]:
        if self._newest:
            return entries.before(self.run, self._high / SECOND, self._together, offset)
        return entries.after(self.run, self._low / SECOND, self._together, offset)

    def _stored(self) -> str:
        return f"{self.run.log_stored}{'' if self.run.log_complete_at is None else ' whole'}"


def write_token(order: str, places: dict[str, Place]) -> str:
    plain = {pk: [place.at, place.offset, place.seen] for pk, place in places.items()}
    packed = zlib.compress(json.dumps([order, plain], separators=(",", ":")).encode())
    return base64.urlsafe_b64encode(packed).decode()


def read_token(token: str, order: str) -> dict[str, Place]:
    """Anybody can write a token: raises BadToken unless all in it is of its kind."""
    if not token:
        return {}
    try:
        if len(token) > MAX_TOKEN:
            raise BadToken
        text = zlib.decompressobj().decompress(base64.urlsafe_b64decode(token), MAX_PLACES_SIZE)
        found = json.loads(text)
        if not isinstance(found, list) or len(found) != 2 or found[0] != order:
            raise BadToken
        return {pk: _place(*fields) for pk, fields in found[1].items()}
    except (ValueError, TypeError, AttributeError, OverflowError, OSError, RecursionError) as problem:
        raise BadToken from problem
    except (zlib.error, binascii.Error) as problem:
        raise BadToken from problem


def _place(at: object, offset: object, seen: object) -> Place:
    if at is not None:
        # A time must be one that a date can express.
        datetime.fromtimestamp(_whole(at) / SECOND, UTC)
    if offset is not None and not 0 <= _whole(offset) < 2**63:
        raise BadToken
    if not isinstance(seen, str):
        raise BadToken
    return Place(None if at is None else _whole(at), None if offset is None else _whole(offset), seen)


def _whole(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadToken
    return number
