"""A study over real hosts while processes are killed, or suspended, at every crash point that the suite has, on the
console's side and on the hosts: the same trials, with the same parameters and measurements, as when nothing happens.

Other jobs pass the points meanwhile, and kill under the study whoever works on both.
"""

from __future__ import annotations

import time

import pytest

from tests.flows import test_crash_points as of_console
from tests.flows.test_crash_points import Trouble, Waker, alone_again, crowd, walk
from tests.flows.test_crash_points_on_hosts import awake, walk_on_hosts
from tests.flows.test_tuning_through_faults import HeldStudy

__all__ = ["alone_again", "awake", "crowd"]
pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(1200)]

# From the sixth on, what is drawn follows from all that was measured before.
TRIALS = 10
BETWEEN_S = 5.0
RARE = (
    *of_console.RARE,
    *of_console.STRANGE,
    *of_console.RECORDED,
    *of_console.PREPARED,
    *of_console.REPORTED,
)
KINDS = ("steady", "reporter", "long", "shelled", "cutter", "imaged", "slow", "short")


@pytest.fixture(scope="module")
def shape():
    return "apart"


class Beside:
    """A study that runs as long as something else does: its trials end one after the other, the last one when that is
    over."""

    def __init__(self, yard, name):
        self.study = HeldStudy(yard, f"{name}-", TRIALS)
        self.ended, self.due = 0, time.monotonic() + BETWEEN_S

    def __call__(self):
        if self.ended < TRIALS - 1 and time.monotonic() >= self.due:
            self.ended, self.due = self.ended + 1, time.monotonic() + BETWEEN_S
            self.study.let_end(self.ended)

    def over(self):
        assert self.study.ended() is None, "the study was to run all the time"
        self.study.let_end(*range(self.ended + 1, TRIALS + 1))
        return self.study.over()


@pytest.fixture(scope="module")
def undisturbed():
    """What each of these studies is, once the first test has found out."""
    return []


def expected(yard, undisturbed):
    if not undisturbed:
        undisturbed += Beside(yard, "undisturbed").over()
        assert len({str(parameters) for _, _, parameters, _ in undisturbed}) == TRIALS
    return undisturbed


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("points", ["usual", "rare", "of studies", "on hosts"])
def test_a_study_is_the_same_at_each_crash_point(crowd, undisturbed, points, how):
    right = expected(crowd, undisturbed)
    beside = Beside(crowd, f"{points.replace(' ', '-')}-{how}")
    if points == "on hosts":
        walk_on_hosts(crowd, how, meanwhile=beside)
    elif points == "rare":
        through_trouble(crowd, how, beside)
    else:
        names = of_console.OF_STUDIES if points == "of studies" else of_console.POINTS
        with Waker(crowd) as waker:
            walk(crowd, names, how, meanwhile=beside)
            waker.wait_until_all_are_awake()
    assert beside.over() == right
    crowd.check(f"after a {how} at {points} points beside a study")


def through_trouble(yard, how, beside):
    trouble = Trouble(yard)

    def meanwhile():
        trouble()
        beside()

    with Waker(yard) as waker:
        try:
            walk(yard, RARE, how, *KINDS, meanwhile=meanwhile)
            waker.wait_until_all_are_awake()
        finally:
            trouble.end()
