"""Tuning jobs, moved on: load, decide, write; make a scheduling pass where trials were asked for; then draw the
parameters that are wanted.

Any process may run it, at any time, twice. The row of the tuning job is locked meanwhile, so two processes never ask
for the same trial. Jobs of trials are cancelled after the commit: whoever holds the row of a job never waits for the
row of its tuning job, and nobody waits the other way round.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q

from agents.hosts import recovery
from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.failpoints import failpoint
from agents.infra.refusals import Refused
from agents.infra.secrets import SecretUnreadable
from agents.infra.sql import Parameter, PartialModel, SelectStatement, UpdateStatements
from agents.infra.texts import said
from jobs import services
from jobs.lifecycle import faulty_jobs
from jobs.metrics import logged
from jobs.models import Job, Project, Trial, TuningJob
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning.decide import decide
from jobs.rules.tuning.lost_trials import pause_text
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.views import TuningPlan
from jobs.scheduling import scheduler
from jobs.secrets import of_tuning_jobs
from jobs.tuning import awaited, drawing, early_stops, ended_studies, silent_trials, snapshot, trials
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

# A tuning job is looked at this often, whatever happens.
LOOK_AGAIN = timedelta(seconds=30)
# One whose trials may be stopped early: their curves grow.
LOOK_AT_CURVES = timedelta(seconds=5)
# One whose decision raised is tried again after this.
RETRY_AFTER_ERROR = timedelta(minutes=1)
# So many trials are asked for in one transaction.
MAX_AT_ONCE = 20

_TUNING_JOB, _PROJECT, _OWNER = PartialModel(TuningJob), PartialModel(Project), PartialModel(User)
_locked = SelectStatement(
    lambda: (
        TuningJob.every.select_for_update(no_key=True, of=("self",))
        .filter(pk=Parameter("study"))
        .exclude(state__in=TERMINAL)
        .order_by()
        .values_list(
            *_TUNING_JOB.names,
            *(f"project__{name}" for name in _PROJECT.names),
            *(f"owner__{name}" for name in _OWNER.names),
        )
    )
)
_with_ended_jobs = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at=None, job__state__in=TERMINAL)
        .order_by()
        .values_list("job")
    )
)
_trial = UpdateStatements(lambda: Trial.objects.filter(pk=Parameter("trial")))
_tuning_job = UpdateStatements(lambda: TuningJob.every.filter(pk=Parameter("tuning_job")))

NO_POINT_LEFT = said("Every point of the space was tried.")
REFUSALS = (InvalidDocument, Refused, SecretUnreadable)


def due(now: datetime) -> list[int]:
    """The tuning jobs whose time has come, whose trials moved, and those with trials that want their parameters."""
    live = Q(trials__ended_at=None)
    moved = live & ~Q(trials__job__state=F("trials__job_state"))
    wanted = live & Q(trials__wanted_at__isnull=False, trials__parameters__isnull=True)
    open_ = TuningJob.every.exclude(state__in=TERMINAL)
    found = open_.filter(Q(due_at__lte=now) | moved | wanted)
    return list(found.order_by("pk").values_list("pk", flat=True).distinct())


def advance(ids: Collection[int], clock: Clock) -> None:
    if not ids or recovery.in_recovery_mode():
        return
    for pk in sorted(ids):
        try:
            _advance(pk, clock)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception as problem:
            log.exception(
                "Tuning job %s could not be advanced; it is tried again in %s.", pk, RETRY_AFTER_ERROR
            )
            TuningJob.every.filter(pk=pk).update(due_at=clock.now() + RETRY_AFTER_ERROR)
            _give_up_places(pk, problem, clock.now())


def _give_up_places(pk: int, problem: Exception, now: datetime) -> None:
    """Trials that cannot get their parameters keep no place from other jobs meanwhile."""
    for job in Job.every.filter(trial_row__tuning_job=pk, undrawn=True, state=JobState.QUEUED):
        faulty_jobs.set_aside(job, problem, "Job %s cannot be given its parameters, and waits.", now)


def _advance(pk: int, clock: Clock) -> None:
    _read_last_lines(pk, clock.now())
    with transaction.atomic():
        tuning_job = _lock(pk)
        if tuning_job is None:
            return
        study, rows = snapshot.study_of(tuning_job), snapshot.trials_of(tuning_job)
        if not tuning_job.outcome and tuning_job.cancel_requested_at is None:
            early_stops.note(study, rows)
        plan = decide(snapshot.view_of(tuning_job, study, rows), clock.now())
        made, more = _write(tuning_job, study, rows, plan, clock.now())
        failpoint("tuning.before")
    failpoint("tuning.after")
    jobs = {trial.number: trial.job for trial in rows}
    for number, why in plan.cancel.items():
        services.cancel(jobs[number], TRAINYARD, clock.now(), why)
    if more:
        hints.tuning([pk])
    if made:
        _place(pk, clock)
    if made or any(map(drawing.is_wanted, rows)):
        # With what the decision has learnt from trials that have ended.
        _draw(pk, clock, rows)


def _place(pk: int, clock: Clock) -> None:
    """A scheduling pass, here and now: mostly there is a place, and a hint to a dispatcher and one back would be waited
    for. It is over the whole queue, so what it fails at is no fault of this study."""
    try:
        scheduler.schedule(clock.now(), drawn_by_caller=pk)
    except Exception:
        log.exception("The scheduling pass for tuning job %s failed; a dispatcher makes it.", pk)
        hints.schedule()
        hints.tuning([pk])  # of a trial for which the pass had found a place, nobody else is told


def _draw(pk: int, clock: Clock, known: Sequence[Trial]) -> None:
    more = True
    while more:
        drawn, more = drawing.draw_next(pk, clock.now(), known)
        failpoint("tuning.drawn")
        for trial in drawn:
            if trial.parameters is None:
                # Otherwise each pass would find a place for it, and keep it from the jobs behind.
                services.cancel(trial.job, TRAINYARD, clock.now(), NO_POINT_LEFT)
                return


def _read_last_lines(pk: int, now: datetime) -> None:
    """The program of a trial may print what it measured, and the study waits for it."""
    logged.read_ended(_with_ended_jobs.column(study=pk), now)


def _lock(pk: int) -> TuningJob | None:
    """With its project and its owner. None: it is over."""
    for row in _locked(study=pk):
        first, second = len(_TUNING_JOB.names), len(_TUNING_JOB.names) + len(_PROJECT.names)
        tuning_job = _TUNING_JOB.build(row[:first])
        tuning_job.project = _PROJECT.build(row[first:second])
        if tuning_job.owner_id is not None:
            tuning_job.owner = _OWNER.build(row[second:])
        return tuning_job
    return None


def _write(
    tuning_job: TuningJob, study: StudySpec, rows: Sequence[Trial], plan: TuningPlan, now: datetime
) -> tuple[int, bool]:
    """Write what the plan says. Returns how many trials were made, and whether more is left for another
    transaction."""
    changed = _write_trials(study, rows, plan)
    made, refused = _request(tuning_job, plan.requested[:MAX_AT_ONCE], now)
    reason = refused or awaited.reason(tuning_job, rows, plan.awaited)
    if not reason and plan.pause is not None:
        reason = pause_text(plan.pause)
    if not reason and plan.outcome is None:
        reason = silent_trials.reason(study, rows, now)
    over = plan.state in TERMINAL
    columns: dict[str, object] = {
        "state": plan.state,
        "reason": reason,
        "started_at": plan.started_at,
        "ended_at": now if over else None,
        "due_at": None if over else now + _look_again(study, plan),
    }
    if plan.outcome is not None:
        columns |= {
            "outcome": plan.outcome.state,
            "error_code": plan.outcome.code or None,
            "error_message": plan.outcome.message,
        }
    if (
        changed
        or plan.requested
        or any(getattr(tuning_job, name) != columns[name] for name in ("state", "reason"))
    ):
        columns["updated_at"] = now
        announce.hints([f"tuning:{tuning_job.pk}", f"jobs:{tuning_job.project.name}"])
    _tuning_job(columns, tuning_job=tuning_job.pk)
    if over:
        of_tuning_jobs.forget(tuning_job)
        tuning_job.refresh_from_db()
        ended_studies.tell(tuning_job, now)
    return made, len(plan.requested) > MAX_AT_ONCE and not refused


def _look_again(study: StudySpec, plan: TuningPlan) -> timedelta:
    usual = LOOK_AT_CURVES if study.early else LOOK_AGAIN
    return usual if plan.look_again_s is None else min(usual, timedelta(seconds=plan.look_again_s))


def _write_trials(study: StudySpec, rows: Sequence[Trial], plan: TuningPlan) -> bool:
    changed = False
    for trial in rows:
        change = plan.trials.get(trial.number)
        columns: dict[str, object] = {}
        if change is not None:
            columns = {
                "state": change.state,
                "final": snapshot.kept_measurement(change.final),
                "measurements": None if change.ended_at is None else snapshot.kept(study, change),
                "infeasible_reason": change.reason,
                "ending": change.ending,
                "started_at": change.started_at,
                "ended_at": change.ended_at,
            }
        if trial.job_state != trial.job.state:
            columns["job_state"] = trial.job.state
        if columns:
            _trial(columns, trial=trial.pk)
            changed = True
    return changed


def _request(tuning_job: TuningJob, numbers: Sequence[int], now: datetime) -> tuple[int, str]:
    """Ask for these trials. Returns how many were made, and why the next one could not be submitted: that is no failure
    of a trial, and it is tried again."""
    if not numbers:
        return 0, ""
    request = trials.requests(tuning_job, now)
    with services.read_together(tuning_job.project):
        for made, number in enumerate(numbers):
            try:
                with transaction.atomic():
                    request(number)
            except REFUSALS as refused:
                why = said("Trial {number} cannot be submitted: {why}", number=number, why=str(refused))
                return made, why
    return len(numbers), ""
