"""The sweep: periodic work, which looks at every row that is due.

Hints (wake/hints.py) only make something happen sooner, and may be lost. The sweep finds what no hint announced.

Celery beat starts the sweep as a task, and a timer in each worker calls it too. The tick "sweep" lets only one of them
do it at a time. If two did it at the same time, work would be done twice, and nothing worse.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet

from agents import time_doubt
from agents.hosts import enrolment, host_history
from agents.infra.clock import Clock, elapsed
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Unavailable
from agents.infra.sql import Parameter, SelectStatement, UpdateStatement
from agents.models import Host
from jobs import idle_rule, shells
from jobs.artifacts import blobs, expiry, leftovers, levels, uploads
from jobs.host_sync import gpu_hours, location_hours, prepared, samples
from jobs.host_sync.lost_hosts import mark_jobs_of
from jobs.lifecycle.advance import advance
from jobs.logs import mask_places, segments, verify
from jobs.maintenance import logins
from jobs.metrics import logged
from jobs.models import Job, Tick
from jobs.notifications import create, delivery
from jobs.outputs import due as outputs
from jobs.pipelines import registry
from jobs.projects import log_storage, usage
from jobs.recordings import store as recordings
from jobs.scheduling import expected_starts, scheduler
from jobs.tuning import advance as tuning
from jobs.tuning import outlooks, shadows, tuner
from jobs.wake import hints

log = logging.getLogger(__name__)

# A due job is tried again after this. It is written before the job is tried: if the attempt kills the process, the next
# sweep begins with other jobs.
RETRY_AFTER = timedelta(seconds=30)
BATCH = 200
LOG_BATCH = 20
SLICE_S = 2.0
RECENT = timedelta(seconds=10)
# A tick that is further in the future than this was written before the clock was set back.
AHEAD = timedelta(minutes=1)


def _free_due_jobs() -> QuerySet[Job, tuple[int]]:
    """A job that is locked is being decided about at this moment."""
    skip = connection.features.has_select_for_update_skip_locked
    due = Job.every.filter(due_at__lte=Parameter("now")).order_by("pk").values_list("pk")
    return due.select_for_update(no_key=True, skip_locked=skip)[:BATCH]


_ticks = SelectStatement(lambda: Tick.objects.order_by().values_list("name", "at"))
_exists = SelectStatement(lambda: Tick.objects.filter(name=Parameter("name")).order_by().values_list("pk"))
_claim = UpdateStatement(
    lambda: Tick.objects.filter(
        Q(at__lte=Parameter("before")) | Q(at__gt=Parameter("after")), name=Parameter("name")
    ),
    "at",
    serial=F("serial") + 1,
)
_due_jobs = SelectStatement(_free_due_jobs)
_due_hosts = SelectStatement(lambda: Host.objects.filter(due_at__lte=Parameter("now")).values_list("pk"))
_changed_hosts = SelectStatement(
    lambda: Host.objects.filter(status_since__gte=Parameter("since")).values_list("pk")
)


@dataclass(frozen=True)
class Period:
    """How often something is done at most, and the tick that says when it was done last."""

    tick: str
    every: timedelta


LEFTOVERS = Period("leftovers", timedelta(hours=1))
BLOBS = Period("blobs", timedelta(minutes=10))
# What took too long goes on after this, so that the rest of the sweep has most of the time.
WHILE = timedelta(minutes=1)


@dataclass(frozen=True)
class Part:
    """One kind of work. With a period it is done once in that time, by the sweep that claims its tick."""

    work: Callable[[Clock], None]
    tick: str = ""
    every: timedelta = timedelta()

    def is_due(self, last: Mapping[str, datetime], now: datetime) -> bool:
        """Whether this sweep does it. `last`: when each tick was claimed, as read before: most parts need no claim."""
        if not self.tick:
            return True
        at = last.get(self.tick)
        return (at is None or _is_over(at, self.every, now)) and claim(self.tick, self.every, now)


def parts() -> tuple[Part, ...]:
    return (
        Part(mark_jobs_of_changed_hosts),
        Part(advance_due),
        Part(place_jobs),
        Part(advance_tuning_jobs),
        Part(settle_preparations),
        Part(expect_starts, "expected starts", timedelta(seconds=15)),
        Part(move_outputs),
        Part(note_shadows, "shadows", timedelta(seconds=5)),
        Part(note_outlooks, "outlooks", timedelta(seconds=10)),
        Part(make_logins, "logins", timedelta(seconds=10)),
        Part(check_hosts),
        Part(record_models, "models", timedelta(seconds=3)),
        Part(verify_logs),
        Part(find_secrets_in_logs, "secrets in logs", timedelta(seconds=5)),
        Part(read_metrics_in_logs, "metrics in logs", timedelta(seconds=3)),
        Part(roll_long_logs),
        Part(compact_logs, "compact", timedelta(seconds=10)),
        Part(keep_recordings, "recordings", timedelta(seconds=15)),
        Part(close_shells, "shells", timedelta(seconds=15)),
        Part(tidy, "orphans", timedelta(hours=1)),
        Part(tidy_stored_files, "stored files", timedelta(hours=1)),
        Part(remove_leftovers, LEFTOVERS.tick, LEFTOVERS.every),
        Part(remove_blobs, BLOBS.tick, BLOBS.every),
        Part(fold_usage, "usage", timedelta(minutes=1)),
        Part(measure_logs, "log storage", timedelta(seconds=10)),
        Part(measure_files, "file storage", timedelta(seconds=30)),
        Part(sum_gpu_hours, "gpu hours", timedelta(minutes=5)),
        Part(roll_samples, "samples", timedelta(minutes=1)),
        Part(notify_of_history),
        Part(notify_of_waits, "waits", timedelta(minutes=1)),
        Part(send_notifications),
        Part(stop_idle),
    )


def sweep(now: datetime) -> None:
    clock = Clock(now)
    if not claim("sweep", timedelta(seconds=settings.TRAINYARD.tick_s / 2), now):
        return
    last: dict[str, datetime] = dict(_ticks())
    for part in parts():
        try:
            if part.is_due(last, clock.now()):
                part.work(clock)
        except DATABASE_UNAVAILABLE:
            raise  # the database is unavailable for the other parts too
        except Exception:
            log.exception("The sweep's part %r failed; the others go on.", part.work.__name__)


def mark_jobs_of_changed_hosts(clock: Clock) -> None:
    """Mark as due the jobs on hosts whose status changed lately: they became unreachable, came back, or restarted."""
    for host_id in _changed_hosts.column(since=clock.now() - RECENT):
        mark_jobs_of(host_id, clock.now())


def place_jobs(clock: Clock) -> None:
    scheduler.schedule_unasked(clock.now())


def advance_tuning_jobs(clock: Clock) -> None:
    tuner.put(tuning.due(clock.now()))


def note_shadows(clock: Clock) -> None:
    shadows.note(clock.now())


def note_outlooks(clock: Clock) -> None:
    outlooks.note(clock.now())


def settle_preparations(clock: Clock) -> None:
    """Release or refuse the runs that waited for a preparation which is over."""
    jobs, hosts = prepared.settle(clock.now())
    hints.hosts(hosts)
    hints.jobs(jobs)


def expect_starts(clock: Clock) -> None:
    expected_starts.keep_expected_starts(clock.now())


def move_outputs(clock: Clock) -> None:
    outputs.move_due(clock.now())


def verify_logs(clock: Clock) -> None:
    verify.verify_logs(verify.due_for_verification(clock.now()), clock.now())


def record_models(clock: Clock) -> None:
    registry.record_models(clock.now())


def find_secrets_in_logs(clock: Clock) -> None:
    mask_places.find_places(mask_places.due())


def read_metrics_in_logs(clock: Clock) -> None:
    logged.read_due(clock.now())


def roll_long_logs(clock: Clock) -> None:
    roll(segments.to_roll())


def compact_logs(clock: Clock) -> None:
    for run in segments.crowded(LOG_BATCH):
        with skip_on_error("The pieces of %s cannot be joined.", run):
            segments.compact(run)


def measure_logs(clock: Clock) -> None:
    """What the logs of projects take. What is told is written with what was measured, so it is told once."""
    now = clock.now()
    with transaction.atomic():
        for crossing in log_storage.measure(now):
            create.create_for_log_storage(crossing.project, crossing.level, crossing.text, now)


def measure_files(clock: Clock) -> None:
    """What the files of projects take, told as for logs."""
    with transaction.atomic():
        for crossing in levels.measure():
            create.create_for_file_storage(crossing.project, crossing.level, crossing.text, clock.now())


def sum_gpu_hours(clock: Clock) -> None:
    gpu_hours.sum_hours(clock.now())
    location_hours.sum_hours(clock.now())


def roll_samples(clock: Clock) -> None:
    samples.roll(clock.now())


def notify_of_history(clock: Clock) -> None:
    create.create_from_history(clock.now())


def notify_of_waits(clock: Clock) -> None:
    create.create_for_waiting(clock.now())


def send_notifications(clock: Clock) -> None:
    delivery.send_due(clock.now())


def stop_idle(clock: Clock) -> None:
    idle_rule.cancel_idle_jobs(clock.now())


def tidy(clock: Clock) -> None:
    segments.sweep_orphans(elapsed())
    outputs.drop_deleted(clock.now())
    if not time_doubt.why(clock.now()):
        recordings.expire(clock.now())
        delivery.delete_old(clock.now())
        host_history.prune(clock.now() - timedelta(days=settings.TRAINYARD.host_events_days))


def tidy_stored_files(clock: Clock) -> None:
    """Forget uploads that have not ended, and delete what is too old."""
    uploads.sweep(clock.now(), elapsed())
    expiry.expire(clock.now())


def remove_leftovers(clock: Clock) -> None:
    """Remove stored files that nothing explains. A storage elsewhere may not answer: then the next hour does it."""
    try:
        leftovers.sweep_orphans(elapsed())
        leftovers.sweep_parts(elapsed())
    except Unavailable as problem:
        log.warning("Stored files were not looked through: %s", problem.message)
    if leftovers.are_looks_open():
        do_again(LEFTOVERS, clock.now())


def remove_blobs(clock: Clock) -> None:
    """Remove stored files that nothing has pointed to for an hour."""
    try:
        _, is_done = blobs.sweep(clock.now())
    except Unavailable as problem:
        # The row has gone, and its file is an orphan now.
        log.warning("Files that nothing needs were not removed: %s", problem.message)
        return
    if not is_done:
        do_again(BLOBS, clock.now())


def do_again(part: Period, now: datetime) -> None:
    """The work has stopped before its end: it is due again in a while, and not after its period."""
    Tick.objects.filter(name=part.tick).update(at=now - part.every + WHILE)


def close_shells(clock: Clock) -> None:
    shells.close_abandoned(clock.now())
    shells.close_unattended(clock.now())


def keep_recordings(clock: Clock) -> None:
    recordings.keep_complete(clock.now())


def fold_usage(clock: Clock) -> None:
    while usage.fold(clock.now()) == usage.FOLD:
        pass


def claim(name: str, every: timedelta, now: datetime) -> bool:
    """True for one caller in each period of `every`. A tick in the future means that the clock was set back."""
    if _claim(name=name, at=now, before=now - every, after=now + AHEAD):
        return True
    return not _exists(name=name) and Tick.objects.get_or_create(name=name, defaults={"at": now})[1]


def _is_over(at: datetime, every: timedelta, now: datetime) -> bool:
    """The condition of `_claim`, for a tick that was read."""
    return at <= now - every or at > now + AHEAD


def advance_due(clock: Clock) -> None:
    while ids := take_due(clock.now()):
        advance(ids, clock)
        if len(ids) < BATCH:
            return


def take_due(now: datetime) -> list[int]:
    with transaction.atomic():
        ids = _due_jobs.column(now=now)
        if ids:
            Job.every.filter(pk__in=ids).update(due_at=now + RETRY_AFTER)
    return ids


def make_logins(clock: Clock) -> None:
    """Projects that were made, or bound to a location, get their logins on machines that have a template."""
    logins.make_all_missing(clock.now())


def check_hosts(clock: Clock) -> None:
    now = clock.now()
    for pk in _due_hosts.column(now=now):
        if Host.objects.filter(pk=pk, due_at__lte=now).update(due_at=now + enrolment.CHECK_LOST):
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
