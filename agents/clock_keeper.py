"""Keeps Trainyard's time (agents/infra/clock.py) the same in all processes, whatever the clocks of machines show.

The database has a row for each boot of each machine: what is to be added to the time since that boot. All processes of
the machine follow it. A machine that comes new takes the time from the clock of the database, to which the other
machines have noted their difference, and never a time before the last one that was noted.

If a clock is set, the time goes on as before, and the jump is recorded for admins. From then on the time goes half a
percent faster or slower, until it is the database's again. A machine that stood still is brought forward to the others.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.db import DEFAULT_DB_ALIAS, connection, connections

from agents.infra import clock, database_pool
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.sql import Parameter, PartialModel, SelectStatement
from agents.models import ClockJump, Host, MachineClock

log = logging.getLogger(__name__)

EVERY_S = 2.0
STOP_S = 10.0
# While the time is not known.
AGAIN_S = 0.25
START_S, MUST_START_S = 5.0, 60.0
# How often a machine writes its row, and for how long after that it counts as running.
NOTE_EVERY_S = 5.0
ALIVE_S = 15.0
# For how long a machine must be behind another one: longer than the row of a machine that died counts.
BEHIND_FOR_S = ALIVE_S + NOTE_EVERY_S
# Smaller differences are no jump: clocks are corrected by some tenths of a second all the time.
JUMP_S = 2.0
# How much faster or slower the time goes until it is the database's again.
RATE = 0.005
# Each process notices the jump of a clock; one line is enough.
SAME_JUMP = timedelta(seconds=30)
KEEP_JUMPS = timedelta(days=90)
SHOW_JUMPS = timedelta(days=1)
MAX_SHOWN = 5
MAX_QUESTION_S = 1.0
_JUMP = PartialModel(ClockJump)
# What `recent_jumps` asks the database, for `read_ahead`.
RECENT_JUMPS = SelectStatement(
    lambda: ClockJump.objects.filter(at__gt=Parameter("since")).values_list(*_JUMP.names)[:MAX_SHOWN]
)
DATABASE = "the database's clock"
STOOD_STILL = "stood still"


@dataclass(frozen=True, slots=True)
class Differences:
    """Trainyard's time minus what the clock of the database shows, and minus what this machine's shows. Seconds."""

    database_s: float
    machine_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What clocks showed at one moment, in seconds. SQLite has no clock of its own: the machine's counts for it."""

    elapsed: float
    database: float
    machine: float

    def beside(self, offset_s: float) -> Differences:
        now = offset_s + self.elapsed
        return Differences(now - self.database, now - self.machine)


class ClockKeeper:
    """Keeps the time of this process. `look` reads the machine's row, compares clocks, and writes the row when it is
    time."""

    def __init__(self, machine: str = "") -> None:
        self._machine = machine or this_boot()
        self._before: Differences | None = None
        # The offset that was followed last. Another process may step it: that is no clock that was set.
        self._offset_s: float | None = None
        self._behind_since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self) -> None:
        """Keep the time in a thread from now on. Wait a moment for the database, so that the time is right at once.

        If it does not answer, the time counts as not known until it does: then nothing may be dated (`clock.is_known`).
        """
        if not self._wait(START_S):
            clock.distrust()
        self._thread.start()

    def start_or_end(self) -> None:
        """The same for a process that decides: it ends if it cannot have the time, and is started again."""
        if not self._wait(MUST_START_S):
            log.error("The database did not answer for %.0f s, so the time is not known.", MUST_START_S)
            raise SystemExit(1)
        self._thread.start()

    def _wait(self, seconds: float) -> bool:
        until = clock.elapsed() + seconds
        while not self.look_quietly():
            if clock.elapsed() >= until or self._stopping.wait(AGAIN_S):
                return False
        return True

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        known = clock.is_known()
        if not known:
            with without_pool():
                while not known and not self._stopping.wait(AGAIN_S):
                    known = self.look_quietly()
        while not self._stopping.wait(EVERY_S if known else AGAIN_S):
            known = self.look_quietly()
        connection.close()

    def look_quietly(self) -> bool:
        """Whether the time is known. While the database does not answer, this process goes on with what it has."""
        try:
            return self.look()
        except DATABASE_UNAVAILABLE as problem:
            log.debug("The time could not be compared: %s", problem)
            connection.close()
            # This thread asks every two seconds, so it is the first to see that there was an outage.
            database_pool.renew(getattr(connection, "pool", None))
        except Exception:
            log.exception("The time could not be compared")
            connection.close()
        return False

    def look(self) -> bool:
        """Follow the row of this boot, and compare clocks. False if there is no row yet, and it could not be made."""
        rows = {row.machine: row for row in MachineClock.objects.all()}
        own = rows.pop(self._machine, None)
        if own is not None:
            clock.follow(own.offset_s, own.unsure_since)
        shown = read_clocks()
        if shown is None:
            return own is not None
        if own is None:
            own = self._anchor(rows.values(), shown)
            self._before = shown.beside(own.offset_s)
            clock.follow(own.offset_s, own.unsure_since)
        now, found = clock.now(), shown.beside(own.offset_s)
        if self._offset_s is not None and abs(own.offset_s - self._offset_s) > JUMP_S:
            self._before = found
        self._offset_s = own.offset_s
        self._report(self._before or Differences(own.database_s, own.machine_s), found, now)
        self._before = found
        behind = self._behind(rows.values(), found, now)
        if behind or now - own.noted_at >= timedelta(seconds=NOTE_EVERY_S):
            self._note(own, behind, found, now)
        return True

    def _anchor(self, others: Iterable[MachineClock], shown: Reading) -> MachineClock:
        """The row of a machine that was just started, or has just joined."""
        latest = max(others, key=lambda row: row.noted_at, default=None)
        guess = moment(shown.database + (latest.database_s if latest else 0.0))
        alive = latest is not None and abs(guess - latest.noted_at) < timedelta(seconds=ALIVE_S)
        if not alive:  # nobody has kept the time from before: the clock is believed
            guess = moment(shown.database)
        # A time that is over for sure. The answer of a host counts for a database from before there were these rows.
        answers = Host.every.exclude(seen_at=None).order_by("-seen_at").values_list("seen_at", flat=True)[:1]
        known = [answer for answer in answers if answer]
        if latest and not alive:
            known.append(latest.noted_at + timedelta(seconds=NOTE_EVERY_S + EVERY_S))
        over = max(known, default=guess)
        at = max(guess, over)
        offset_s = at.timestamp() - shown.elapsed
        found = shown.beside(offset_s)
        row, made = MachineClock.objects.get_or_create(
            machine=self._machine,
            defaults={
                "name": socket.gethostname()[:100],
                "offset_s": offset_s,
                "database_s": found.database_s,
                "machine_s": found.machine_s,
                "noted_at": at,
                "unsure_since": latest.unsure_since if latest and alive else at,
            },
        )
        if made and (behind := (over - guess).total_seconds()) > JUMP_S:
            record(DATABASE, -behind, at)
        return row

    def _report(self, before: Differences, found: Differences, now: datetime) -> None:
        """Record the clocks that were set since the last look."""
        database = before.database_s - found.database_s
        if connection.vendor == "postgresql" and abs(database) > JUMP_S:
            record(DATABASE, database, now)
        machine = before.machine_s - found.machine_s
        if abs(machine) > JUMP_S:
            record(f"the clock of {socket.gethostname()}", machine, now)

    def _note(self, own: MachineClock, behind: float, found: Differences, now: datetime) -> None:
        """Write the row, with the step by which the time comes nearer to the database's. One process does it."""
        passed = min((now - own.noted_at).total_seconds(), ALIVE_S)
        step = behind or max(-passed * RATE, min(passed * RATE, -found.database_s))
        unchanged = MachineClock.objects.filter(pk=own.pk, noted_at=own.noted_at, offset_s=own.offset_s)
        after = Differences(found.database_s + step, found.machine_s + step)
        if not unchanged.update(
            offset_s=own.offset_s + step,
            database_s=after.database_s,
            machine_s=after.machine_s,
            noted_at=now + timedelta(seconds=step),
        ):
            return
        clock.follow(own.offset_s + step, own.unsure_since)
        self._offset_s = own.offset_s + step
        self._before = after
        if behind:
            record(f"{STOOD_STILL}: {socket.gethostname()}", behind, clock.now())

    def _behind(self, others: Iterable[MachineClock], found: Differences, now: datetime) -> float:
        """By how much this machine is behind another one that runs: it was suspended, and its own time stood still.

        It counts when it has been so for a while. If the database's clock was set, the rows of the others are from
        before that for a moment.
        """
        running = [row for row in others if now - row.noted_at < timedelta(seconds=ALIVE_S)]
        behind = max((row.database_s for row in running), default=found.database_s) - found.database_s
        if behind <= JUMP_S:
            self._behind_since = None
            return 0.0
        if self._behind_since is None:
            self._behind_since = clock.elapsed()
        return behind if clock.elapsed() - self._behind_since > BEHIND_FOR_S else 0.0


@contextmanager
def without_pool() -> Iterator[None]:
    """Give this thread a connection of its own. After an outage a pool waits longer and longer, up to minutes, before
    it tries to connect again."""
    shared = connections[DEFAULT_DB_ALIAS]
    if "pool" not in shared.settings_dict.get("OPTIONS", {}):
        yield
        return
    shared.close()
    own = connections.create_connection(DEFAULT_DB_ALIAS)
    options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"}
    own.settings_dict = {**own.settings_dict, "OPTIONS": options}
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        own.close()
        connections[DEFAULT_DB_ALIAS] = shared


def this_boot() -> str:
    """Names the time since the start of this machine: another boot, and another time namespace, count anew."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"[:100]
    except OSError:
        return boot


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def follow_before_migrating() -> None:
    """Follow the time while tables may be missing, so that rows which migrations make are not dated by this machine's
    clock. A new database begins with what its own clock shows."""
    offset_s = None
    if MachineClock._meta.db_table in connection.introspection.table_names():
        # Only this column: a later version may have added others, which are not there yet.
        rows = MachineClock.objects.filter(machine=this_boot())
        offset_s = rows.values_list("offset_s", flat=True).first()
    if offset_s is None and (shown := read_clocks()) is not None:
        offset_s = shown.database - shown.elapsed
    if offset_s is not None:
        clock.follow(offset_s, None)


def read_clocks() -> Reading | None:
    """None if it took too long to tell which moments belong together: this process was suspended meanwhile."""
    asked = clock.elapsed()
    database = None
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            database = float(cursor.fetchone()[0])
    machine = clock.date_clock()
    answered = clock.elapsed()
    if answered - asked > MAX_QUESTION_S:
        return None
    return Reading((asked + answered) / 2, machine if database is None else database, machine)


def record(what: str, seconds: float, now: datetime) -> None:
    """A clock was set, or a machine stood still: log it, and keep it for admins. Not once for each process."""
    alike = ClockJump.objects.filter(clock=what[:150], at__gt=now - SAME_JUMP)
    if alike.filter(seconds__gt=seconds - JUMP_S, seconds__lt=seconds + JUMP_S).exists():
        return
    row = ClockJump.objects.create(at=now, clock=what[:150], seconds=seconds)
    log.warning("%s Trainyard's time goes on unchanged.", text_of(row))
    ClockJump.objects.filter(at__lt=now - KEEP_JUMPS).delete()


def text_of(jump: ClockJump) -> str:
    """The jump in a sentence."""
    length = timedelta(seconds=round(abs(jump.seconds)))
    if jump.clock.startswith(STOOD_STILL):
        machine = jump.clock.partition(": ")[2]
        return f"The machine {machine} stood still for {length}; its processes were brought forward to the others."
    what = jump.clock[0].upper() + jump.clock[1:]
    return f"{what} was set {'forward' if jump.seconds > 0 else 'back'} by {length}."


def recent_jumps(now: datetime) -> list[ClockJump]:
    """What admins are shown: the jumps of the last day, the newest first."""
    return [_JUMP.build(row) for row in RECENT_JUMPS(**of_recent_jumps(now))]


def of_recent_jumps(now: datetime) -> dict[str, datetime]:
    """With which values `RECENT_JUMPS` is asked then."""
    return {"since": now - SHOW_JUMPS}


def ahead_s() -> float:
    """By how much Trainyard's time is ahead of this machine's clock."""
    return clock.now().timestamp() - clock.date_clock()
