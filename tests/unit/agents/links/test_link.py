"""The parts of a link that need no host: key lines, back-off, arrivals, inbox, work queue, the stream's writer."""

from __future__ import annotations

import json
import queue
import threading
import time
import tracemalloc
from types import SimpleNamespace

import pytest

from agents.hosts.seals import SealOwner
from agents.links import inbox, link
from agents.links.arrivals import ARRIVAL_KINDS, arrivals, memory_size
from agents.links.backoff import JITTER, WAITS, Backoff, FailureKind
from agents.links.control_plane import Arrival, Fact, Forgotten, Frame, Gap, LogEnd, RecordingPiece
from agents.links.frame_limits import CpuShare, FrameLimits
from agents.links.inbox import Inbox
from agents.links.stream import Stream
from agents.links.work_queue import WorkQueue
from agents.runner.wire import PROTOCOL, WireError, encode
from agents.ssh import host_keys
from agents.ssh.install_runner import command
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.memory_channel import MemoryChannel

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"


# Key lines


def test_a_fingerprint_is_the_one_that_ssh_keygen_shows():
    # From `ssh-keygen -l`, of the key line above.
    assert host_keys.fingerprint(KEY + " a comment") == "SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8"
    assert host_keys.same_key(KEY, KEY + " other words")
    assert host_keys.algorithms("ssh-rsa AAAA") == ("rsa-sha2-512", "rsa-sha2-256")


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 ä", "ssh-ed25519 A A=A"])
def test_a_text_that_is_no_key_line_is_refused(line):
    with pytest.raises(host_keys.InvalidHostKey):
        host_keys.fingerprint(line)


# Back-off


def test_each_failure_waits_longer_up_to_its_limit_and_a_new_kind_starts_anew():
    for kind, (first, longest) in WAITS.items():
        backoff = Backoff(lambda: 0.5)
        waits = [backoff.wait_s(kind) for _ in range(40)]
        assert waits[0] == first and waits[-1] == longest and waits == sorted(waits)
        assert backoff.wait_s(next(k for k in FailureKind if k != kind)) in [f for f, _ in WAITS.values()]


def test_a_refused_login_is_never_repeated_within_a_minute_whatever_the_jitter():
    assert Backoff(lambda: 0.0).wait_s(FailureKind.LOGIN) > 60 < Backoff(lambda: 0.0).wait_s(FailureKind.KEY)
    assert (
        Backoff(lambda: 0.999).wait_s(FailureKind.UNREACHABLE)
        / Backoff(lambda: 0.0).wait_s(FailureKind.UNREACHABLE)
        > 1 + JITTER / 2
    )


# Arrivals

FACT = {"run": "r", "phase": "running", "pid": 7}
GOOD = [
    ({"t": "fact", **FACT}, b"", [Arrival("r", Fact(FACT))]),
    ({"t": "inventory", "runs": [FACT], "last": True}, b"", [Arrival("r", Fact(FACT))]),
    (
        {"t": "log", "run": "r", "from": 3, "to": 5, "z": 0, "at": [[3, 1.5]]},
        b"ab",
        [Arrival("r", Frame(3, 5, False, b"ab", ((3, 1.5),)))],
    ),
    (
        {"t": "gap", "run": "r", "from": 0, "to": 9, "reason": "budget"},
        b"",
        [Arrival("r", Gap(0, 9, "budget"))],
    ),
    ({"t": "log_end", "run": "r", "size": 9, "digest": "x"}, b"", [Arrival("r", LogEnd(9, "x"))]),
    ({"t": "forgotten", "run": "r"}, b"", [Arrival("r", Forgotten())]),
]


@pytest.mark.parametrize(("message", "payload", "expected"), GOOD)
def test_each_message_becomes_its_arrivals(message, payload, expected):
    assert arrivals(message, payload) == expected


NONSENSE = (None, -1, 1 << 70, 1.5, True, "", "../x", ".r", "r/s", "x" * 81, [], {}, [[]], [1], "\0", "ü")


@pytest.mark.parametrize(("message", "payload", "expected"), GOOD)
def test_every_field_of_a_hostile_host_is_checked(message, payload, expected):
    """Each field is set to nonsense: the message is refused with WireError, or fits the types that the control plane
    expects."""
    assert message["t"] in ARRIVAL_KINDS
    for field in message.keys() - {"t"}:
        for value in NONSENSE:
            try:
                found = arrivals({**message, field: value}, payload)
            except WireError:
                continue
            for arrival in found:
                assert arrival.run == "r"
                what = arrival.what
                if isinstance(what, Frame | Gap):
                    assert 0 <= what.start < what.end <= 1 << 60
                    assert type(what.start) is type(what.end) is int
                if isinstance(what, Frame):
                    assert all(type(at) is int and type(when) is float for at, when in what.at)
                if isinstance(what, LogEnd):
                    assert type(what.size) is int and isinstance(what.digest, str)
        if field in ("run", "runs", "phase", "from", "to", "size"):
            with pytest.raises(WireError):
                arrivals({key: known for key, known in message.items() if key != field}, payload)


@pytest.mark.parametrize("payload", [b"", b"abc", b"a" * (2 << 20)])
def test_a_frame_whose_bytes_do_not_fit_its_range_is_refused(payload):
    with pytest.raises(WireError):
        arrivals({"t": "log", "run": "r", "from": 3, "to": 5, "z": 0}, payload)


# The inbox


def frame(size):
    return Arrival("r", Frame(0, size, False, b"x" * size))


def test_a_batch_is_bounded_in_number_and_weight_and_stays_until_it_is_done():
    box = Inbox()
    for _ in range(100):
        box.put(frame(10))
    assert len(box.batch()) == inbox.BATCH == len(box.batch())
    box.done(box.batch())
    assert len(box.batch()) == 100 - inbox.BATCH
    box.done(box.batch())
    assert not box.batch()
    box.put(frame(3 * inbox.BATCH_BYTES))
    box.put(frame(10))
    assert len(box.batch()) == 1, "one that is over the limit comes alone, but it comes"


def recorded(start, size=200_000):
    return Arrival("r", RecordingPiece("a" * 32, start, start + size, True, b"x" * 1000))


def test_a_line_overtakes_the_recordings_of_shells():
    """Of which a batch takes little, in their order, and always some."""
    box, line = Inbox(), frame(10)
    pieces = [recorded(start) for start in range(0, 10_000_000, 200_000)]
    for piece in pieces:
        box.put(piece)
    box.put(line)
    assert box.batch() == [line, *pieces[:2]]
    stored = []
    while batch := box.batch():
        stored += batch
        box.done(batch)
    assert stored == [line, *pieces] and len(box) == 0
    box.put(recorded(0, 3 * inbox.BATCH_RECORDED))
    assert len(box.batch()) == 1, "one that is over the limit comes alone, but it comes"


def test_large_log_frames_are_gathered_and_nothing_else_is():
    box, large = Inbox(), frame(inbox.BULK_FRAME)
    assert box.gather_s() == 0, "nothing waits"
    box.put(large)
    assert box.gather_s() == inbox.GATHER_S
    box.put(frame(10))
    assert box.gather_s() == 0, "the log is no longer behind: a line waits"
    box.done(box.batch())
    box.put(large)
    box.put(Arrival("r", Fact(FACT)))
    assert box.gather_s() == 0, "a fact waits"
    box.done(box.batch())
    packed = Arrival("r", Frame(0, inbox.GATHER_BYTES // 2, True, b"x" * 1000))
    box.put(packed)
    assert box.gather_s() == inbox.GATHER_S
    box.put(packed)
    assert box.gather_s() == 0, "enough waits"
    box.done(box.batch()[:1])
    assert box.gather_s() == inbox.GATHER_S
    box.close()
    assert box.gather_s() == 0


@pytest.mark.parametrize("junk", [[{}] * 20_000, {str(n): n for n in range(4_000)}, [[[]]] * 7_000])
def test_the_size_of_a_fact_is_counted_as_its_size_in_memory(junk):
    """At least a third of what Python uses for it, so that a full inbox is not a full memory."""
    tracemalloc.start()
    try:
        found = arrivals(json.loads(json.dumps({"t": "fact", **FACT, "junk": junk})), b"")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / 3 < sum(map(memory_size, found)) < 10 * used
    assert memory_size(Arrival("r", Fact(FACT))) < 2_000


def test_the_runs_of_a_host_that_are_kept_in_memory_are_limited(monkeypatch):
    monkeypatch.setattr(link, "MAX_RUNS", 5)
    opened = link.Link.__new__(link.Link)
    opened._lock, opened._phases, opened.inbox = threading.Lock(), {}, Inbox()
    opened._notify = lambda: None
    facts = [{"t": "fact", "run": f"r{n}", "phase": "running"} for n in range(6)]
    for fact in facts[:5]:
        opened._put_arrivals(fact, b"")
    with pytest.raises(WireError):
        opened._put_arrivals(facts[5], b"")


def test_a_forgotten_run_is_no_longer_listed():
    """Else a run whose id is wanted again, or a stop of it, would never be sent to the host that has nothing of it."""
    opened = link.Link.__new__(link.Link)
    opened._lock, opened._phases, opened.inbox = threading.Lock(), {}, Inbox()
    opened._limits = FrameLimits()
    for run in ("r1", "r2"):
        opened._put_arrivals({"t": "fact", "run": run, "phase": "closed"}, b"")
    opened._put_arrivals({"t": "forgotten", "run": "r1"}, b"")
    opened._put_arrivals({"t": "forgotten", "run": "never-seen"}, b"")
    assert opened.phases() == {"r2": "closed"}


def test_a_host_that_reports_errors_without_end_does_not_fill_the_process_log(caplog):
    opened = link.Link.__new__(link.Link)
    opened._lock, opened._refused, opened._errors_logged = threading.Lock(), [], 0
    for n in range(3 * link.MAX_LOGGED_ERRORS):
        opened._note_error({"about": "pull", "run": f"r{n}", "message": "no"})
    assert (
        len(caplog.records) == link.MAX_LOGGED_ERRORS and len(opened.refusals()) == 3 * link.MAX_LOGGED_ERRORS
    )


@pytest.mark.parametrize(("free", "known"), [(7.9, 7), (-1, None), (1e300, None), ("7", None)])
def test_the_free_disk_of_a_greeting_fits_a_row(free, known):
    said = {"v": PROTOCOL, "wall": 1.0, "free_mb": free}
    assert link.Hello.of(said, 0.0).free_mb == known


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("wall", "offset"),
    [(7.5, 5.5), (NAN, 0), (INFINITE, 0), (-INFINITE, 0), (1e300, 0), (10**400, 0), ("7", 0)],
)
def test_the_clock_of_a_greeting_fits_a_row(wall, offset):
    assert link.Hello.of({"v": PROTOCOL, "wall": wall}, 2.0).wall_offset_s == offset


def test_a_full_inbox_holds_its_reader_until_there_is_room_or_it_is_closed():
    box, results = Inbox(), queue.Queue()
    for _ in range(2):
        box.put(frame(inbox.MAX_BYTES // 2))
    reader = threading.Thread(target=lambda: [results.put(box.put(frame(5))) for _ in range(2)])
    reader.start()
    wait_for(lambda: box.full, "the reader to wait")
    assert results.empty()
    box.done(box.batch())
    assert results.get(timeout=30) is True
    box.put(frame(inbox.MAX_BYTES))
    box.close()
    assert results.get(timeout=30) in (True, False)
    assert box.put(frame(1)) is False
    reader.join(30)


# The work queue


class Item:
    def __init__(self, work=lambda: False):
        self.work, self.inside, self.most, self.times = work, 0, 0, 0

    def do_work(self):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.times += 1
        try:
            return self.work()
        finally:
            self.inside -= 1


@pytest.fixture
def work_queue():
    work_queue = WorkQueue(3)
    yield work_queue
    work_queue.stop()


def test_a_host_is_worked_on_once_at_a_time_and_no_work_is_lost(work_queue):
    left = iter(range(50))

    def work():
        time.sleep(0.002)  # long enough that two worker threads at once would meet
        return next(left, None) is not None

    busy = Item(work)
    for _ in range(200):
        work_queue.enqueue(busy)
        time.sleep(0.0005)
    wait_for(lambda: next(left, "over") == "over", "all the work to be done")
    assert busy.most == 1
    count = busy.times
    work_queue.enqueue(busy)
    wait_for(lambda: busy.times > count, "one more piece of work")


def test_work_that_hangs_or_fails_holds_up_no_other_host(work_queue):
    gate = threading.Event()
    stuck, other = Item(gate.wait), Item()
    broken = Item(lambda: 1 / 0)
    for item in (stuck, broken, other, broken, other):
        work_queue.enqueue(item)
    wait_for(lambda: other.times and broken.times, "the work of the others")
    gate.set()


def test_an_outage_is_logged_once_and_the_next_one_again(work_queue, caplog):
    away = threading.Event()
    away.set()
    host = Item(lambda: 1 / 0 if away.is_set() else False)

    def look(times):
        until = host.times + times
        while host.times < until:
            work_queue.enqueue(host)
            time.sleep(0.001)
        wait_for(lambda: not work_queue._at_work and not work_queue._queue, "the last of them to be over")

    look(5)
    away.clear()
    look(2)
    away.set()
    look(5)
    assert caplog.text.count("database work of a host failed") == 2


# Messages on a stream


def test_a_long_message_over_a_slow_link_does_not_end_it(monkeypatch):
    """Each piece counts as an answer: else the link would be given up, and the same message would begin anew for
    ever."""
    clock = [1000.0]
    monkeypatch.setattr(link.time, "monotonic", lambda: clock[0])
    opened = link.Link.__new__(link.Link)
    opened._lock, opened._phases, opened.inbox = threading.Lock(), {}, Inbox()
    opened._limits, opened._cpu_share = FrameLimits(), CpuShare()
    opened._resting, opened.ready, opened._inventory_s, opened._checked_at = False, True, 0.0, clock[0]
    opened._transport, opened.misbehaviour = SimpleNamespace(misbehaviour=""), ""
    opened._never_greeted = False
    opened._limits._greeted = True
    opened._limits.note_pull("r1")
    kept = []
    monkeypatch.setattr(opened.inbox, "put", lambda arrival: kept.append(arrival) or True)
    opened.hello, opened.error, opened._notify, opened.send = (
        object(),
        "",
        lambda soon: None,
        lambda ping: None,
    )
    opened.mark, opened._seal_owner, opened.pinged_at, opened.heard_at = (
        0,
        SealOwner(1, "u", KEY),
        clock[0],
        clock[0],
    )
    channel = MemoryChannel()
    opened._stream = Stream(channel, lambda: True, "test")
    noise = bytes(n * 7 % 256 for n in range(4000))
    message = encode({"t": "log", "run": "r1", "from": 0, "to": len(noise), "z": 0, "at": []}, noise)
    given_up = []

    def pieces():
        yield b"TRAINYARD-RUNNER 1\n"
        for start in range(0, len(message), 500):
            clock[0] += 5.0
            given_up.append(opened.check(clock[0], 4.0, 12.0))
            yield message[start : start + 500]

    channel.heard = pieces()
    opened.listen(lambda hello: None)
    assert len(given_up) == 9 and not any(given_up)
    assert [arrival.what for arrival in kept] == [Frame(0, len(noise), False, noise)]


# Commands


@pytest.mark.parametrize(("sha", "mode"), [("a" * 64, "serve; id"), ("a" * 63 + ";", "serve"), ("", "serve")])
def test_a_remote_command_holds_only_a_digest_and_a_known_mode(sha, mode):
    with pytest.raises(ValueError):
        command(sha, mode)


def test_reports_that_others_follow_wait_for_them_and_log_bytes_do_not():
    waits = [
        link.gather_s({"t": "fact", "phase": phase}) for phase in ("claimed", "running", "ended", "closed")
    ]
    assert waits == sorted(waits, reverse=True) and 0 < waits[-1] <= 0.02 and waits[0] <= 0.1
    assert link.gather_s({"t": "fact", "phase": ["nonsense"]}) == link.gather_s({"t": "fact"}) == waits[-1]
    at_once = [kind for kind in (*ARRIVAL_KINDS, "gpus", "error") if link.gather_s({"t": kind}) == 0.0]
    assert set(at_once) >= {"log", "gap", "log_end", "inventory", "gpus", "error"}
    assert 0 < link.gather_s({"t": "forgotten"}) <= 0.25 and link.gather_s({"t": "pong"}) == float("inf")
