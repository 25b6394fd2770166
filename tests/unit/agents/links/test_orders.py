"""The difference between what is wanted on a host and what it reports."""

from __future__ import annotations

import itertools

import pytest

from agents.links.control_plane import PreparationName, Wanted
from agents.links.orders import (
    REPEAT_METRICS_S,
    REPEAT_S,
    Forget,
    Prepare,
    Pull,
    PullMetrics,
    PullRecording,
    SentOrders,
    Start,
    Stop,
    Unprepare,
    is_changing,
    orders_to_send,
)

RUN = Wanted(pull_from=0)


def sent(wants, phases, now=0.0, before=None):
    return orders_to_send(wants, phases, before if before is not None else SentOrders(), now)


@pytest.mark.parametrize(
    ("want", "phase", "expected"),
    [
        (RUN, None, [Start("r"), Pull("r", 0)]),
        (RUN, "claimed", [Pull("r", 0)]),
        (Wanted(pull_from=70), "running", [Pull("r", 70)]),
        (Wanted(), "running", []),
        (Wanted(stop=True, grace_s=3), None, [Stop("r", 3)]),
        (Wanted(stop=True, grace_s=3, pull_from=5), "running", [Stop("r", 3), Pull("r", 5)]),
        (Wanted(stop=True, grace_s=3), "ended", [Stop("r", 3)]),
        (Wanted(stop=True, pull_from=5), "closed", [Pull("r", 5)]),
        (Wanted(forget=True), "closed", [Forget("r")]),
        (Wanted(forget=True), None, [Forget("r")]),
        (Wanted(stop=True, forget=True), "closed", [Forget("r")]),
        (Wanted(stop=True, forget=True), "running", [Stop("r", 0.0)]),
        (Wanted(forget=True), "running", []),
    ],
)
def test_the_order_for_each_wanted_state_and_reported_phase(want, phase, expected):
    assert sent({"r": want}, {} if phase is None else {"r": phase}) == expected


def test_a_run_that_the_host_knows_or_that_is_stopped_or_forgotten_is_not_started():
    flags = itertools.product((False, True), (False, True), (None, 0), (None, "claimed", "running", "closed"))
    for stop, forget, pull, phase in flags:
        want = Wanted(stop=stop, forget=forget, pull_from=pull)
        found = sent({"r": want}, {} if phase is None else {"r": phase})
        assert (Start("r") in found) == (phase is None and not stop and not forget)
        assert not any(isinstance(order, Forget) for order in found) or phase in (None, "closed")


def test_an_unknown_run_is_left_alone():
    assert sent({}, {"stranger": "running", "other": "closed"}) == []


def test_an_order_is_repeated_only_when_no_report_shows_it_done():
    before = SentOrders()
    wants = {"r": RUN, "s": Wanted(stop=True, grace_s=5)}
    assert sent(wants, {"s": "running"}, 0.0, before) == [Start("r"), Pull("r", 0), Stop("s", 5)]
    assert sent(wants, {"s": "running"}, REPEAT_S - 1, before) == []
    assert sent(wants, {"s": "running"}, REPEAT_S + 1, before) == [Start("r"), Stop("s", 5)]
    assert sent(wants, {"r": "running", "s": "closed"}, 3 * REPEAT_S, before) == []


def test_a_shorter_grace_is_sent_at_once():
    before = SentOrders()
    sent({"r": Wanted(stop=True, grace_s=60)}, {"r": "running"}, 0.0, before)
    assert sent({"r": Wanted(stop=True, grace_s=0)}, {"r": "running"}, 0.1, before) == [Stop("r", 0)]


def test_a_pull_is_repeated_only_when_it_was_refused():
    before = SentOrders()
    sent({"r": RUN}, {"r": "running"}, 0.0, before)
    assert sent({"r": Wanted(pull_from=9000)}, {"r": "running"}, 99.0, before) == []
    before.pulled.discard("r")
    assert sent({"r": Wanted(pull_from=9000)}, {"r": "running"}, 99.0, before) == [Pull("r", 9000)]


def test_sent_orders_are_dropped_with_their_run():
    before = SentOrders()
    sent({"r": RUN}, {}, 0.0, before)
    sent({}, {}, 1.0, before)
    assert (before.at, before.pulled) == ({}, set())


def test_a_host_is_changing_only_while_orders_are_under_way():
    assert not is_changing({"r": RUN}, {"r": "running"})
    assert is_changing({"r": RUN}, {})
    assert is_changing({"r": Wanted(stop=True)}, {"r": "running"})
    assert is_changing({"r": Wanted(forget=True)}, {"r": "closed"})


def test_a_recording_is_asked_for_piece_by_piece_and_again_when_nothing_came():
    notes = SentOrders()

    def at(*offsets, now=0.0):
        recordings = tuple((f"k{number}", offset) for number, offset in enumerate(offsets))
        return sent({"r": Wanted(recordings=recordings)}, {"r": "running"}, now, notes)

    assert at(0, 0) == [PullRecording("r", "k0", 0), PullRecording("r", "k1", 0)]
    assert at(100, 0) == [PullRecording("r", "k0", 100)], "the next piece at once, the other is on its way"
    assert at(100, 0, now=REPEAT_S) == [PullRecording("r", "k0", 100), PullRecording("r", "k1", 0)]
    assert at() == [] and notes.at == {}, "nothing is kept of what has come"
    assert sent({"r": Wanted(recordings=(("k", 0),))}, {}) == [Start("r")], "first the run"


IMAGE = PreparationName("image", "k1", 1)
HELD_BACK = Wanted(held_back=True, prepare=(IMAGE,))


def test_what_the_host_prepares_for_nobody_is_ended():
    assert orders_to_send({}, {}, SentOrders(), 0.0, [IMAGE]) == [Unprepare(IMAGE)]
    stopped = {"r": Wanted(stop=True, grace_s=3)}
    assert orders_to_send(stopped, {}, SentOrders(), 0.0, [IMAGE]) == [Stop("r", 3), Unprepare(IMAGE)]


def test_what_another_run_waits_for_is_not_ended():
    wants = {"r": Wanted(stop=True, grace_s=3), "s": HELD_BACK}
    assert orders_to_send(wants, {}, SentOrders(), 0.0, [IMAGE]) == [Stop("r", 3), Prepare(IMAGE)]
    asked_anew = PreparationName("image", "k1", 0)
    assert Unprepare(asked_anew) not in orders_to_send(wants, {}, SentOrders(), 0.0, [asked_anew])


def test_an_end_is_repeated_until_the_host_reports_it():
    notes = SentOrders()
    assert orders_to_send({}, {}, notes, 0.0, [IMAGE]) == [Unprepare(IMAGE)]
    assert orders_to_send({}, {}, notes, REPEAT_S - 1, [IMAGE]) == []
    assert orders_to_send({}, {}, notes, REPEAT_S + 1, [IMAGE]) == [Unprepare(IMAGE)]
    assert orders_to_send({}, {}, notes, REPEAT_S + 2, []) == [] and notes.at == {}


def test_reports_are_asked_for_once_from_each_offset():
    """The host answers when its program reports something: that may take days."""
    before = SentOrders()
    at = lambda start, phase="running", now=0.0: sent(  # noqa: E731
        {"r": Wanted(metrics_from=start)}, {"r": phase} if phase else {}, now, before
    )
    assert at(0) == [PullMetrics("r", 0)] and at(0, now=REPEAT_S * 3) == []
    assert at(70, now=50) == [PullMetrics("r", 70)] and at(70, now=60) == []
    assert at(None, now=61) == [] and at(70, now=62) == [PullMetrics("r", 70)], "there is room again"
    assert at(70, now=62 + REPEAT_METRICS_S) == [PullMetrics("r", 70)]
    before.refused("metrics_pull", "r")
    assert at(70, now=63 + REPEAT_METRICS_S) == [PullMetrics("r", 70)]
    assert sent({"r": Wanted(metrics_from=0)}, {}) == [Start("r"), PullMetrics("r", 0)]
    assert sent({"r": Wanted(stop=True, metrics_from=0)}, {}) == [Stop("r", 0.0)]
