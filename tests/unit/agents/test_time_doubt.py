"""Nothing is deleted by its age while ages may not be believed, and the reason is said."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import clock_keeper, time_doubt
from agents.infra import clock
from agents.models import ClockJump, Host, MachineClock
from tests.unit.agents.test_clock_keeper import Machine, world
from tests.unit.console.views.example_rows import a_host

__all__ = ["world"]

pytestmark = pytest.mark.django_db
YEAR_S = 365 * 86400.0
DAY_S = 86400.0


def why():
    return time_doubt.why(timezone.now())


def restart(world, after_s, wrong_s=0.0):
    """All machines were off for so long; then one is started, whose clock is wrong."""
    world.look(world.process(Machine()), seconds=10)
    assert why() == "", "it was never in doubt before"
    world.true += after_s
    world.database_wrong_s = wrong_s
    process = world.process(Machine("another boot", up_s=3.0, wrong_s=wrong_s))
    world.look(process)
    return process


@pytest.mark.parametrize("wrong_s", [10 * YEAR_S, 2 * DAY_S, 2 * 3600.0])
def test_a_time_that_was_taken_from_a_clock_is_believed_after_a_day(world, wrong_s):
    process = restart(world, 120, wrong_s)
    assert "Nobody kept Trainyard's time for" in why()
    world.true += DAY_S - 60
    world.look(process)
    assert why()
    world.true += 120
    world.look(process)
    assert why() == ""


def test_another_start_ends_no_doubt(world):
    world.look(restart(world, 120, 10 * YEAR_S))
    world.true += 120
    again = world.process(Machine("a third boot", up_s=3.0, wrong_s=10 * YEAR_S))
    world.look(again, seconds=10)
    assert "Nobody kept Trainyard's time for" in why()


def test_a_usual_restart_is_in_no_doubt(world):
    restart(world, 600)
    assert why() == ""


def test_a_clock_that_is_put_right_leaves_trainyards_time_in_doubt_until_it_is_right_too(world):
    process = restart(world, 120, 10 * YEAR_S)
    world.true += 2 * DAY_S
    world.look(process)
    assert why() == ""
    world.database_wrong_s = process[0].wrong_s = 0.0
    world.look(process, seconds=10)
    assert "differs by 36" in why() and "clock set-right" in why(), "ten years are 3650 days"
    assert "one of them is wrong. If it is that clock, put it right" in why(), (
        "nobody sets it by a wrong clock"
    )


def test_hosts_that_show_another_time_are_believed_where_they_are_most(world):
    process = restart(world, 120, 10 * YEAR_S)
    world.true += 2 * DAY_S
    world.look(process)
    for offset_s in (-10 * YEAR_S, -10 * YEAR_S, 3.0):
        Host.objects.filter(pk=a_host().pk).update(clock_offset_s=offset_s)
    assert "from the clocks of most of its hosts" in why()
    Host.objects.filter(clock_offset_s=3.0).update(clock_offset_s=3.0)
    Host.objects.filter(pk=Host.objects.order_by("pk").first().pk).update(clock_offset_s=0.0)
    assert why() == "", "one host with a wrong clock"


@pytest.mark.parametrize(
    ("offsets", "is_doubted"),
    [
        ((-10 * YEAR_S, 3.0), False),
        ((10 * YEAR_S, 3.0), False),
        ((10 * YEAR_S, None), True),
        ((-10 * YEAR_S, 10 * YEAR_S), True),
        ((7200.0, 7200.0, 0.0, 0.0), False),
        ((7200.0, 7200.0, 7200.0, 0.0), True),
    ],
)
def test_hosts_are_believed_where_more_than_half_of_them_differ(world, offsets, is_doubted):
    world.look(world.process(Machine()), seconds=10)
    for offset_s in offsets:
        Host.objects.filter(pk=a_host().pk).update(clock_offset_s=offset_s)
    assert bool(why()) is is_doubted


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=3650)])
def test_a_time_that_was_set_while_it_was_ahead_is_in_doubt_for_no_years(world, ahead):
    """It was put back since."""
    world.look(world.process(Machine()), seconds=10)
    ClockJump.objects.create(at=timezone.now() + ahead, clock=time_doubt.OWN, seconds=7200)
    assert why() == ""
    MachineClock.objects.create(
        machine="of before",
        name="a",
        offset_s=0,
        database_s=0,
        machine_s=0,
        noted_at=timezone.now() - timedelta(minutes=1),
        unsure_since=timezone.now() + ahead,
    )
    assert why() == ""


def test_a_time_that_was_set_is_believed_after_a_day(world):
    world.look(world.process(Machine()), seconds=10)
    ClockJump.objects.create(at=timezone.now(), clock=time_doubt.OWN, seconds=7200)
    assert why().startswith("Trainyard's time was set at 20")
    assert time_doubt.why(timezone.now() + timedelta(days=1, minutes=1)) == ""


def test_a_time_that_is_not_known_is_not_believed(world, monkeypatch):
    assert not MachineClock.objects.exists() and "is not known yet" in why()
    world.look(world.process(Machine()))
    assert why() == ""
    monkeypatch.setattr(clock, "is_known", lambda: False)
    assert "is not known yet" in why()


def test_clocks_that_are_nearly_right_do_not_matter(world):
    world.look(world.process(Machine()), seconds=10)
    MachineClock.objects.update(database_s=clock_keeper.JUMP_S * 5)
    Host.objects.filter(pk=a_host().pk).update(clock_offset_s=-90.0)
    assert why() == ""
