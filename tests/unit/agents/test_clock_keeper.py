"""Trainyard's time goes on as before, whatever the clocks of machines and of the database are set to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from agents import clock_keeper
from agents.clock_keeper import ALIVE_S, BEHIND_FOR_S, EVERY_S, NOTE_EVERY_S, RATE, ClockKeeper, Reading
from agents.infra import clock
from agents.models import ClockJump, Host, MachineClock
from tests.unit.console.views.example_rows import a_host

pytestmark = pytest.mark.django_db
NOW = 1_800_000_000.0
JUMPS = (7200.0, -3600.0, -86400.0)


@dataclass
class Machine:
    """A boot of a machine: how long ago it was started, by how much its clock is wrong, for how long it stood still."""

    name: str = "a"
    up_s: float = 1000.0
    wrong_s: float = 0.0
    still_s: float = 0.0


class World:
    """True time, the database's clock, and the machine on which the process runs that looks now."""

    def __init__(self):
        self.true, self.database_wrong_s, self.on = NOW, 0.0, Machine()

    def elapsed(self):
        return self.true - NOW + self.on.up_s - self.on.still_s

    def read(self):
        return Reading(self.elapsed(), self.true + self.database_wrong_s, self.true + self.on.wrong_s)

    def process(self, machine):
        self.on = machine
        return machine, ClockKeeper(machine.name)

    def look(self, *processes, seconds=0.0):
        """Each process looks, again and again until the seconds are over. Returns the time, as seconds after NOW."""
        until = self.true + seconds
        while True:
            for self.on, keeper in processes:
                keeper.look()
            if self.true >= until:
                return (timezone.now() - datetime.fromtimestamp(NOW, UTC)).total_seconds()
            self.true += EVERY_S


@pytest.fixture
def world(monkeypatch):
    made = World()
    before = clock._offset.seconds, clock._offset.unsure_since
    monkeypatch.setattr(clock, "elapsed", made.elapsed)
    monkeypatch.setattr(clock, "date_clock", lambda: made.true + made.on.wrong_s)
    monkeypatch.setattr(clock_keeper, "read_clocks", made.read)
    yield made
    clock.follow(*before)


def about(seconds):
    return pytest.approx(seconds, abs=1.0)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_is_set_while_processes_run_changes_no_time_and_is_recorded_once(world, jump):
    machine = Machine()
    web, worker = world.process(machine), world.process(machine)
    world.look(web, worker, seconds=20)
    machine.wrong_s = world.database_wrong_s = jump
    assert world.look(web, worker, seconds=60) == about(80)
    sure = clock.unsure_since()
    late = world.process(machine)  # a process that starts after that
    assert world.look(late, web) == about(80)
    assert clock.unsure_since() == sure == datetime.fromtimestamp(NOW, UTC), "no time was lost"
    [row] = ClockJump.objects.exclude(clock=clock_keeper.DATABASE)
    assert row.seconds == about(jump)
    assert ("forward by 2:00:00" if jump > 0 else "back by") in clock_keeper.text_of(row)


@pytest.mark.parametrize("jump", JUMPS)
def test_one_process_with_a_wrong_clock_has_the_time_of_the_others(world, jump):
    right, wrong = Machine(), Machine(wrong_s=jump)
    web = world.process(right)
    world.look(web, seconds=10)
    assert world.look(world.process(wrong), web, seconds=30) == about(40)


def test_leases_of_one_machine_and_of_another_end_at_the_same_moment(world):
    """A machine joins while the database's clock is wrong."""
    first = world.process(Machine())
    world.look(first, seconds=10)
    world.database_wrong_s = -3600.0
    world.look(first, seconds=10)
    second = world.process(Machine("b", up_s=5.0, wrong_s=600.0))
    assert world.look(first, second, seconds=30) == about(50)
    assert world.look(first) == about(50)
    assert clock.unsure_since() == datetime.fromtimestamp(NOW, UTC)


@pytest.mark.parametrize("jump", JUMPS)
def test_after_a_restart_of_the_machine_time_never_goes_back_and_the_doubt_is_known(world, jump):
    world.look(world.process(Machine()), seconds=10)
    world.true += 120
    world.database_wrong_s = jump
    found = world.look(world.process(Machine("another boot", up_s=3.0, wrong_s=jump)))
    assert found == (about(130 + jump) if jump > 0 else pytest.approx(10, abs=NOTE_EVERY_S)) and found >= 10
    assert clock.unsure_since() == timezone.now(), "how long ago anything before it was, is not known"
    assert ClockJump.objects.filter(clock=clock_keeper.DATABASE).exists() is (jump < 0)


def test_a_database_from_before_there_were_these_rows_knows_a_time_that_is_over(world):
    Host.every.filter(pk=a_host().pk).update(seen_at=datetime.fromtimestamp(NOW + 500, UTC))
    assert world.look(world.process(Machine())) == about(500)


def test_where_nobody_has_kept_the_time_the_databases_clock_is_believed(world):
    """What the last machine noted about that clock is a day old. Somebody has mended it since."""
    first = world.process(Machine())
    world.look(first, seconds=10)
    world.database_wrong_s = -3600.0
    world.look(first, seconds=10)
    world.true, world.database_wrong_s = world.true + 86400.0, 0.0
    assert world.look(world.process(Machine("another boot", up_s=3.0))) == about(20 + 86400)


def test_a_machine_that_stood_still_is_brought_forward_to_the_others(world):
    still = Machine("b")
    processes = [world.process(Machine()), world.process(still)]
    world.look(*processes, seconds=20)
    still.still_s = 600.0
    assert world.look(*processes, seconds=4) == about(24 - 600), "the last one that looked"
    assert world.look(*processes, seconds=BEHIND_FOR_S + 10) == about(24 + BEHIND_FOR_S + 10)
    [row] = ClockJump.objects.filter(clock__startswith=clock_keeper.STOOD_STILL)
    assert "stood still for 0:10:00" in clock_keeper.text_of(row)


def test_a_machine_that_died_draws_nobody_forward(world):
    """Its row has the difference to the database's clock from before that was set."""
    one, other = world.process(Machine()), world.process(Machine("b"))
    world.look(one, other, seconds=20)
    world.database_wrong_s = -7200.0
    assert world.look(one, seconds=3 * BEHIND_FOR_S) == about(20 + 3 * BEHIND_FOR_S)


def test_after_a_jump_the_time_comes_back_to_the_database_half_a_percent_faster(world):
    process = world.process(Machine())
    world.look(process, seconds=20)
    world.database_wrong_s = world.on.wrong_s = 7200.0
    passed = 1000 * NOTE_EVERY_S
    gained = world.look(process, seconds=passed) - 20 - passed
    assert gained == pytest.approx(passed * RATE, rel=0.3)


def test_one_process_writes_the_row_every_few_seconds(world):
    machine = Machine()
    processes = [world.process(machine) for _ in range(4)]
    noted = set()
    for _ in range(30):
        world.look(*processes, seconds=EVERY_S)
        noted |= set(MachineClock.objects.values_list("noted_at", flat=True))
    assert len(noted) <= 60 / NOTE_EVERY_S + 2
    assert max(noted) > timezone.now() - timedelta(seconds=ALIVE_S)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_process_that_starts_on_a_busy_machine_has_the_time_of_the_others(world, monkeypatch, jump):
    """The database's answer takes too long to compare clocks by it: the row of the machine says all that is needed."""
    world.look(world.process(Machine()), seconds=10)
    clock.follow(clock.date_clock() + jump - clock.elapsed(), None)  # what a process begins with
    monkeypatch.setattr(clock_keeper, "read_clocks", lambda: None)
    assert ClockKeeper(world.on.name).look_quietly()
    assert world.true - timezone.now().timestamp() == about(0)
    assert not ClockKeeper("another boot").look_quietly(), "it has to ask again"


def test_a_process_that_cannot_have_the_time_decides_nothing(world, monkeypatch):
    monkeypatch.setattr(ClockKeeper, "look_quietly", lambda self: False)
    monkeypatch.setattr(clock_keeper, "MUST_START_S", 0.0)
    with pytest.raises(SystemExit):
        ClockKeeper().start_or_end()
