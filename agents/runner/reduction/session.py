"""One group of trainers at a reducer: their buckets are summed as soon as all of them have sent the same piece."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple

from agents.runner.reduction.peer import Peer
from agents.runner.reduction.wire import (
    ABOUT,
    BUCKET,
    BY_SENDERS,
    CHUNK_OF,
    DISAGREE,
    EMPTY,
    GONE,
    GOODBYE,
    ITEM,
    LATE,
    LOST,
    NAMES,
    PATIENCE_S,
    REDUCER_LOST,
    frame,
)

# What one trainer may be ahead of the others, and what may wait to be sent to one.
AHEAD_BYTES, UNSENT_BYTES = 4 << 20, 4 << 20
# How long an end that was told may take to be read.
LINGER_S = 10.0


class About(NamedTuple):
    """What a trainer says of a bucket. All trainers must say the same, but for `empty`."""

    number: int
    size: int
    kind: int
    by_senders: bool
    empty: bool


class Stream:
    """The buckets of one model: what each trainer has sent of them and the others have not yet."""

    def __init__(self, count: int) -> None:
        self.queues: List[Deque[Any]] = [deque() for _ in range(count)]
        self.bucket: About | None = None
        self.left = 0
        self.divisor = 1

    def is_ready(self) -> bool:
        return all(self.queues)

    def missing(self) -> List[int]:
        """The trainers that the others wait for."""
        return [index for index, queue in enumerate(self.queues) if not queue] if any(self.queues) else []


class Session:
    """`mean(chunks, kind, divisor)` computes. `clock` counts seconds. `patience_s`: how long trainers wait for one
    that sends nothing."""

    def __init__(
        self,
        count: int,
        mean: Callable[[List[Any], int, int], bytes],
        clock: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._patience_s = patience_s
        self.count, self._mean, self._clock = count, mean, clock
        self.peers: Dict[int, Peer] = {}
        self.gone: Dict[int, str] = {}
        self.streams: Dict[int, Stream] = {}
        self.failed = ""
        self.waits_since = clock()
        self.buckets = 0

    def add(self, peer: Peer) -> str:
        """Why this trainer cannot take part; empty if it does."""
        if peer.trainer.trainers != self.count:
            return "trainer %d counts %d trainers and others count %d" % (
                peer.index,
                peer.trainer.trainers,
                self.count,
            )
        if peer.index in self.peers or peer.index in self.gone:
            return "trainer %d is here already" % peer.index
        if self.failed:
            return self.failed
        self.peers[peer.index] = peer
        self.waits_since = self._clock()
        return ""

    # -- what trainers send --

    def on_frame(self, peer: Peer, kind: int, flags: int, number: int, payload: Any) -> None:
        if self.failed:
            return
        if kind == GOODBYE:
            peer.said_goodbye = True
            return
        if kind == LOST:
            text = bytes(payload).decode("utf-8", "replace")
            self.fail(REDUCER_LOST, "trainer %d has lost a reducer: %s" % (peer.index, text))
            return
        stream = self.streams.get(number)
        if stream is None:
            stream = self.streams[number] = Stream(self.count)
        if not any(map(bool, stream.queues)):
            self.waits_since = self._clock()
        if kind == BUCKET:
            bucket, size, item = ABOUT.unpack(payload)
            item_kind = item if item in ITEM else -1
            about = About(bucket, size, item_kind, bool(flags & BY_SENDERS), bool(flags & EMPTY))
            stream.queues[peer.index].append(about)
        elif kind == CHUNK_OF:
            stream.queues[peer.index].append(payload)
            peer.buffered += len(payload)

    def may_read(self, peer: Peer) -> bool:
        """A trainer that is far ahead waits, unless the others wait for it."""
        if peer.buffered <= AHEAD_BYTES:
            return True
        return any(peer.index in stream.missing() for stream in self.streams.values())

    # -- sums --

    def work(self) -> bool:
        """Sum and send what all trainers have sent. True if anything was done."""
        if self.failed:
            return False
        done = False
        for number, stream in sorted(self.streams.items()):
            while not self.failed and stream.is_ready() and not self._is_full():
                self._step(number, stream)
                done = True
        self._look_for_the_gone()
        if done:
            self.waits_since = self._clock()
        return done

    def _is_full(self) -> bool:
        return any(peer.waiting_bytes > UNSENT_BYTES for peer in self.peers.values())

    def _step(self, number: int, stream: Stream) -> None:
        heads = [queue[0] for queue in stream.queues]
        if stream.bucket is None:
            self._begin(stream, heads)
            return
        sizes = [len(head) if not isinstance(head, About) else 0 for head in heads]
        bucket = stream.bucket
        if len(set(sizes)) != 1 or not 0 < sizes[0] <= stream.left or sizes[0] % ITEM[bucket.kind]:
            return self.fail(DISAGREE, "the trainers cut bucket %d differently" % bucket.number)
        for index, queue in enumerate(stream.queues):
            queue.popleft()
            if index in self.peers:
                self.peers[index].buffered -= sizes[0]
        data = frame(CHUNK_OF, sizes[0], number) + self._mean(heads, bucket.kind, stream.divisor)
        for peer in self.peers.values():
            peer.send(data)
        stream.left -= sizes[0]
        if not stream.left:
            self._end(stream)
        return None

    def _begin(self, stream: Stream, heads: List[Any]) -> None:
        if not all(isinstance(head, About) for head in heads):
            return self.fail(DISAGREE, "a trainer sent more than it said")
        first = heads[0]
        for index, head in enumerate(heads):
            if head[:4] != first[:4]:
                return self.fail(DISAGREE, _difference(first, index, head))
        if first.kind < 0 or first.size % ITEM[first.kind]:
            return self.fail(DISAGREE, "the trainers sent numbers of an unknown kind")
        for queue in stream.queues:
            queue.popleft()
        senders = sum(not head.empty for head in heads)
        stream.bucket, stream.left = first, first.size
        stream.divisor = max(1, senders) if first.by_senders else self.count
        if not first.size:
            self._end(stream)
        return None

    def _end(self, stream: Stream) -> None:
        stream.bucket = None
        self.buckets += 1

    # -- ends --

    def leave(self, peer: Peer, why: str) -> None:
        """The connection of this trainer is over. It matters only if others still need it."""
        self.peers.pop(peer.index, None)
        self.gone[peer.index] = "has ended" if peer.said_goodbye else why
        self._look_for_the_gone()

    def _look_for_the_gone(self) -> None:
        if not self.gone:
            return
        missing = {index for stream in self.streams.values() for index in stream.missing()}
        for index in sorted(missing & self.gone.keys())[:1]:
            self.fail(GONE, "trainer %d %s, and the others wait for it" % (index, self.gone[index]))

    def look_at_clock(self) -> None:
        """Trainers that wait too long stop with a sentence."""
        if self.failed or self._clock() - self.waits_since < self._patience_s:
            return
        missing = sorted({index for stream in self.streams.values() for index in stream.missing()})
        if missing:
            names = ", ".join(map(str, missing[:8]))
            self.fail(
                LATE,
                "trainer %s has sent nothing for %s, and the others wait for it"
                % (names, _span(self._patience_s)),
            )

    def fail(self, code: int, sentence: str) -> None:
        self.failed = sentence
        self.streams.clear()
        for peer in self.peers.values():
            peer.fail(code, sentence, self._clock() + LINGER_S)


def _difference(first: About, index: int, other: About) -> str:
    """Say where two trainers disagree, and what usually does that."""
    return (
        "the trainers disagree: trainer 0 sent %s and trainer %d sent %s. All of them must have the same model, the "
        "same options and the same order of steps" % (_words(first), index, _words(other))
    )


def _span(seconds: float) -> str:
    return "%d minutes" % (seconds / 60) if seconds >= 120 else "%d seconds" % seconds


def _words(about: About) -> str:
    how = " to be divided by those with inputs" if about.by_senders else ""
    return "bucket %d (%d bytes of %s here%s)" % (
        about.number,
        about.size,
        NAMES.get(about.kind, "unknown numbers"),
        how,
    )
