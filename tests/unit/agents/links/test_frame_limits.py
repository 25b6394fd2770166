"""What a link takes from its runner: an honest runner meets no limit, and a hostile one is found out."""

from __future__ import annotations

import pytest

from agents.links.frame_limits import (
    CPU_BURST_S,
    CPU_SHARE,
    DROPPED,
    FACTS_OF_A_RUN,
    RATES,
    CpuShare,
    FrameLimits,
)
from agents.runner.wire import WireError

HELLO = {"t": "hello"}
LAST_PAGE = {"t": "inventory", "runs": [], "last": True}


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limits(clock):
    found = FrameLimits(clock)
    for frame in (HELLO, LAST_PAGE):
        assert found.admit(frame, b"", ())
    return found


def test_a_greeting_and_an_inventory_come_once_and_in_this_order(limits):
    for again, words in ((HELLO, "second greeting"), (LAST_PAGE, "second inventory")):
        with pytest.raises(WireError, match=words):
            limits.admit(again, b"", ())
    new = FrameLimits()
    assert new.admit({"t": "error", "about": "hello"}, b"", ())
    with pytest.raises(WireError, match="before the greeting"):
        new.admit({"t": "fact", "run": "r"}, b"", ())


def test_an_honest_host_meets_no_limit(limits, clock):
    """A hundred runs for ten minutes: samples every ten seconds, a change a minute, logs that were asked for."""
    runs = [f"r{n}" for n in range(100)]
    for run in runs:
        limits.note_pull(run)
    for second in range(600):
        clock.now += 1.0
        for run in runs:
            assert limits.admit({"t": "log", "run": run}, b"x", runs)
            if second % 10 == 0:
                assert limits.admit({"t": "sample", "run": run}, b"", runs)
            if second % 60 == 0:
                assert limits.admit({"t": "fact", "run": run}, b"", runs)
        assert limits.admit({"t": "pong"}, b"", runs)


def test_samples_that_come_too_often_and_logs_that_nobody_asked_for_are_dropped(limits, clock):
    sample, log = {"t": "sample", "run": "r"}, {"t": "log", "run": "r"}
    assert [limits.admit(sample, b"", ["r"]) for _ in range(3)] == [True, False, False]
    assert not limits.admit({"t": "sample", "run": "nobody"}, b"", ["r"])
    assert not limits.admit(log, b"x", ["r"])
    limits.note_pull("r")
    assert limits.admit(log, b"x", ["r"])
    limits.note_forgotten("r")
    assert not limits.admit(log, b"x", ["r"])
    clock.now += 10.0
    assert limits.admit(sample, b"", ["r"])


@pytest.mark.parametrize("kind", ["metrics", "metrics_end"])
def test_one_answer_comes_for_each_time_that_reports_are_asked_for(limits, kind):
    payload = b"x" if kind == "metrics" else b""
    answer = {"t": kind, "run": "r"}
    assert not limits.admit(answer, payload, ["r"])
    limits.note_metrics_pull("r")
    assert [limits.admit(answer, payload, ["r"]) for _ in range(2)] == [True, False]
    limits.note_metrics_pull("r")
    limits.note_forgotten("r")
    assert not limits.admit(answer, payload, ["r"])


def test_the_end_of_reports_may_come_behind_the_last_piece(limits):
    piece, end = {"t": "metrics", "run": "r"}, {"t": "metrics_end", "run": "r"}
    limits.note_metrics_pull("r")
    assert limits.admit(piece, b"x", ["r"]) and limits.admit(end, b"", ["r"])
    assert not limits.admit(end, b"", ["r"]) and not limits.admit(piece, b"x", ["r"])
    limits.note_metrics_pull("r")
    assert limits.admit(end, b"", ["r"])
    assert not limits.admit(piece, b"x", ["r"])  # it was the answer


@pytest.mark.parametrize("kind", [*RATES, "sample", "log", "unknown"])
def test_a_flood_of_any_kind_ends_the_link(limits, kind):
    most = RATES.get(kind, DROPPED)[0]
    with pytest.raises(WireError, match="too many"):
        for number in range(most + 2):
            limits.note_pull(f"r{number}" if kind in RATES else "")
            limits.admit({"t": kind, "run": f"r{number}"}, b"", ())


def test_a_flood_of_facts_of_one_run_ends_the_link(limits):
    with pytest.raises(WireError, match="type fact"):
        for _ in range(FACTS_OF_A_RUN[0] + 1):
            limits.admit({"t": "fact", "run": "r"}, b"", ())


def test_bytes_behind_a_frame_that_has_none_end_the_link(limits):
    with pytest.raises(WireError, match="bytes behind"):
        limits.admit({"t": "fact", "run": "r"}, b"x", ())


def test_a_link_that_used_its_share_of_cpu_rests(clock):
    used = Clock()
    share = CpuShare(clock, used)
    used.now += CPU_BURST_S
    assert share.rest_s() == 0.0
    used.now += 1.0
    assert share.rest_s() == pytest.approx(1.0 / CPU_SHARE)
    clock.now += 1.0 / CPU_SHARE
    assert share.rest_s() == 0.0


def test_an_answer_about_a_removal_comes_once_for_each_that_was_asked_for(limits):
    """However many an admin asks for: an honest host has no rate to keep. What nobody asked for is dropped."""
    keys = [f"{number:064x}" for number in range(3000)]
    for key in keys:
        limits.note_removal("blobs", key)
    for key in keys:
        answer = {"t": "discarded", "kind": "blobs", "key": key, "why": ""}
        assert limits.admit(answer, b"", ()) and not limits.admit(answer, b"", ())
    assert not limits.admit({"t": "discarded", "kind": ["blobs"], "key": {}}, b"", ())
