"""A study that gets more trials: one that runs, or one that is over and goes on.

The new counts are judged by the same decision as any study: what would end again at once is refused, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from agents.infra.texts import said
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.json_fields import Complaints, MessageReader
from jobs.rules.tuning.decide import decide
from jobs.rules.tuning.lost_trials import counted
from jobs.rules.tuning.parse_tuning_job import MAX_PARALLEL, MAX_TRIALS
from jobs.rules.tuning.views import TuningView

TRIALS, PARALLEL, FAILED = "max_trial_count", "parallel_trial_count", "max_failed_trial_count"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many trials a study may have, how many at once, and how many may fail (0: Trainyard decides)."""

    trials: int
    parallel: int
    failed: int


def parse_extension(document: object, now: Counts) -> Counts:
    """The counts that a study gets; what is left out stays. Raises InvalidDocument."""
    complaints = Complaints()
    fields = MessageReader(document, "", complaints)
    asked = Counts(
        fields.whole(TRIALS, default=now.trials, minimum=1, maximum=MAX_TRIALS),
        fields.whole(PARALLEL, default=now.parallel, minimum=1, maximum=MAX_PARALLEL),
        fields.whole(FAILED, default=now.failed, minimum=0, maximum=MAX_TRIALS),
    )
    if asked.trials < now.trials:
        fields.complain(
            TRIALS,
            said(
                "must not be below {most}, which the study has: trials that were promised are not taken back. "
                "Cancel the study instead.",
                most=now.trials,
            ),
        )
    if asked.failed > asked.trials:
        fields.complain(
            FAILED,
            said(
                "must not be above maxTrialCount, which is {most}: it would never be reached.",
                most=asked.trials,
            ),
        )
    if asked == now and not any(fields.complained(name) for name in (TRIALS, PARALLEL, FAILED)):
        fields.complain(
            TRIALS, said("must be more than {most}, which the study has already.", most=now.trials)
        )
    fields.close()
    complaints.raise_if_any()
    return asked


def extended(view: TuningView, asked: Counts) -> TuningView:
    """The view of the study as if it had these counts and were not over."""
    state = view.state
    if state in TERMINAL:
        state = JobState.RUNNING if view.started_at else JobState.QUEUED
    return replace(
        view,
        state=state,
        max_trials=asked.trials,
        parallel=asked.parallel,
        max_failed=asked.failed,
        cancel_requested=False,
        outcome=None,
    )


def refusal(view: TuningView, asked: Counts, now: datetime) -> str:
    """Why the study cannot go on with these counts; empty where it can."""
    if view.state not in TERMINAL:
        if view.outcome is not None or view.cancel_requested:
            return said("The study is about to end. Wait until it has ended, and extend it then.")
        return ""
    plan = decide(extended(view, asked), now)
    if plan.outcome is None:
        return ""
    if plan.outcome.message:
        return said("It would end again at once: {why}", why=plan.outcome.message)
    if view.points is not None and len(counted(view.trials)) >= view.points:
        return said("It would end again at once: every point of its space was tried.")
    had = len(counted(view.trials))
    if asked.trials <= had:
        return said("It has had {count} trials, so maxTrialCount must be more than that.", count=had)
    return said(
        "It would end again at once: its studyStoppingConfig says that it has had enough. Continue it as a new study."
    )
