"""The sweep: periodic work, which looks at every row that is due.

Hints (wake/hints.py) only make something happen sooner, and may be lost. The sweep finds what no hint announced.

Celery beat starts the sweep as a task, and a timer in each worker calls it too. The tick "sweep" lets only one of them
do it at a time. If two did it at the same time, work would be done twice, and nothing worse.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q

from agents.hosts import host_history
from agents.infra.clock import Clock, elapsed
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.models import Host
from jobs import idle_rule, shells
from jobs.host_sync import gpu_hours, samples
from jobs.host_sync.lost_hosts import mark_jobs_of
from jobs.lifecycle.advance import advance
from jobs.logs import segments, verify
from jobs.maintenance import logins
from jobs.models import Job, Tick
from jobs.notifications import create, delivery
from jobs.projects import log_storage, usage
from jobs.scheduling import scheduler
from jobs.wake import hints

log = logging.getLogger(__name__)

# A due job is tried again after this. It is written before the job is tried: if the attempt kills the process, the next
# sweep begins with other jobs.
RETRY_AFTER = timedelta(seconds=30)
BATCH = 200
LOG_BATCH = 20
VERIFY_BATCH = 200
SLICE_S = 2.0
RECENT = timedelta(seconds=10)
EVERY_COMPACT = timedelta(seconds=10)
EVERY_COARSEN = timedelta(minutes=1)
EVERY_GPU_HOURS = timedelta(minutes=5)
EVERY_WAITS = timedelta(minutes=1)
EVERY_SHELLS = timedelta(seconds=15)
EVERY_ORPHANS = timedelta(hours=1)
EVERY_FOLD = timedelta(minutes=1)
EVERY_LOGINS = timedelta(seconds=10)
EVERY_LOG_STORAGE = timedelta(seconds=10)
ENROL_AHEAD = timedelta(minutes=2)


def sweep(now: datetime) -> None:
    clock = Clock(now)
    if not claim("sweep", timedelta(seconds=settings.TRAINYARD.tick_s / 2), now):
        return
    for part in (
        mark_jobs_of_changed_hosts,
        advance_due,
        place_jobs,
        make_logins,
        check_hosts,
        verify_logs,
        roll_long_logs,
        compact_logs,
        close_shells,
        tidy,
        fold_usage,
        measure_logs,
        sum_gpu_hours,
        roll_samples,
        notify,
        stop_idle,
    ):
        try:
            part(clock)
        except DATABASE_UNAVAILABLE:
            raise  # the database is unavailable for the other parts too
        except Exception:
            log.exception("The sweep's part %r failed; the others go on.", part.__name__)


def mark_jobs_of_changed_hosts(clock: Clock) -> None:
    """Mark as due the jobs on hosts whose status changed lately: they became unreachable, came back, or restarted."""
    recent = Host.objects.filter(status_since__gte=clock.now() - RECENT)
    for host_id in recent.values_list("pk", flat=True):
        mark_jobs_of(host_id, clock.now())


def place_jobs(clock: Clock) -> None:
    scheduler.schedule_unasked(clock.now())


def verify_logs(clock: Clock) -> None:
    verify.verify_logs(verify.due_for_verification(clock.now(), VERIFY_BATCH), clock.now())


def roll_long_logs(clock: Clock) -> None:
    roll(segments.to_roll(LOG_BATCH))


def compact_logs(clock: Clock) -> None:
    if claim("compact", EVERY_COMPACT, clock.now()):
        for run in segments.crowded(LOG_BATCH):
            with skip_on_error("The pieces of %s cannot be joined.", run):
                segments.compact(run)


def measure_logs(clock: Clock) -> None:
    """What the logs of projects take. What is told is written with what was measured, so it is told once."""
    now = clock.now()
    if claim("log storage", EVERY_LOG_STORAGE, now):
        with transaction.atomic():
            for crossing in log_storage.measure(now):
                create.create_for_log_storage(crossing.project, crossing.level, crossing.text, now)


def sum_gpu_hours(clock: Clock) -> None:
    if claim("gpu hours", EVERY_GPU_HOURS, clock.now()):
        gpu_hours.sum_hours(clock.now())


def roll_samples(clock: Clock) -> None:
    if claim("samples", EVERY_COARSEN, clock.now()):
        samples.roll(clock.now())


def notify(clock: Clock) -> None:
    create.create_from_history(clock.now())
    if claim("waits", EVERY_WAITS, clock.now()):
        create.create_for_waiting(clock.now())
    delivery.send_due(clock.now())


def stop_idle(clock: Clock) -> None:
    idle_rule.cancel_idle_jobs(clock.now())


def tidy(clock: Clock) -> None:
    if claim("orphans", EVERY_ORPHANS, clock.now()):
        segments.sweep_orphans(elapsed())
        delivery.delete_old(clock.now())
        host_history.prune(clock.now() - timedelta(days=settings.TRAINYARD.host_events_days))


def close_shells(clock: Clock) -> None:
    if claim("shells", EVERY_SHELLS, clock.now()):
        shells.close_abandoned(clock.now())


def fold_usage(clock: Clock) -> None:
    if claim("usage", EVERY_FOLD, clock.now()):
        while usage.fold(clock.now()) == usage.FOLD:
            pass


def claim(name: str, every: timedelta, now: datetime) -> bool:
    """True for one caller in each period of `every`. A tick in the future means that the clock was set back."""
    ours = Q(at__lte=now - every) | Q(at__gt=now + timedelta(minutes=1))
    if Tick.objects.filter(ours, name=name).update(at=now, serial=F("serial") + 1):
        return True
    return Tick.objects.get_or_create(name=name, defaults={"at": now})[1]


def advance_due(clock: Clock) -> None:
    while ids := take_due(clock.now()):
        advance(ids, clock)
        if len(ids) < BATCH:
            return


def take_due(now: datetime) -> list[int]:
    with transaction.atomic():
        skip = connection.features.has_select_for_update_skip_locked
        due = Job.every.filter(due_at__lte=now).order_by("pk")
        # A job that is locked is being decided about at this moment.
        ids = list(due.select_for_update(no_key=True, skip_locked=skip).values_list("pk", flat=True)[:BATCH])
        Job.every.filter(pk__in=ids).update(due_at=now + RETRY_AFTER)
    return ids


def make_logins(clock: Clock) -> None:
    """Projects that were made, or bound to a location, get their logins on machines that have a template."""
    if claim("logins", EVERY_LOGINS, clock.now()):
        logins.make_all_missing(clock.now())


def check_hosts(clock: Clock) -> None:
    now = clock.now()
    due = Host.objects.filter(due_at__lte=now)
    for pk in due.values_list("pk", flat=True):
        if Host.objects.filter(pk=pk, due_at__lte=now).update(due_at=now + ENROL_AHEAD):
            hints.enrol(pk)


def roll(runs: list[str], clock: Callable[[], float] = time.monotonic) -> None:
    until = clock() + SLICE_S
    for run in runs:
        with skip_on_error("The log of %s cannot be rolled.", run):
            while segments.roll(run) and clock() < until:
                pass


@contextmanager
def skip_on_error(message: str, run: str) -> Iterator[None]:
    """Log an error about one run's log and go on with the others."""
    try:
        yield
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        log.exception(message, run)
