"""The round trip of a small frame: measured one at a time, whatever a host answers."""

from __future__ import annotations

from agents.links.round_trip import RoundTrip


def test_one_frame_is_under_way_and_its_answer_is_the_delay():
    sent = []
    trip = RoundTrip(sent.append)
    assert trip.look(10.0) is None and sent == [1]
    trip.answered(1, 10.25)
    assert trip.look(11.0) == 0.25 and sent == [1, 2]


def test_a_frame_that_is_late_counts_before_it_is_answered():
    sent = []
    trip = RoundTrip(sent.append)
    trip.look(10.0)
    assert trip.look(10.5) == 0.5
    trip.answered(1, 10.75)
    assert trip.look(11.0) == 0.75
    assert trip.look(11.5) == 0.75 and trip.look(12.0) == 1.0 and sent == [1, 2]


def test_answers_that_nobody_asked_for_count_for_nothing():
    sent = []
    trip = RoundTrip(sent.append)
    trip.answered(0, 1.0)
    trip.answered(None, 1.0)
    assert trip.look(10.0) is None
    for strange in (7, True, "1", None, [1], 1.0):
        trip.answered(strange, 10.1)
    assert trip.look(10.5) == 0.5 and sent == [1]
