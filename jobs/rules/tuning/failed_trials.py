"""How many failed trials end a study. A trial that was lost by a fault of hosts (`lost_trials.py`) is none.

A number that the document gives is kept to. Without one, a typo costs one trial and not sixty: the first trial that
ends decides alone, unless the program of another one has come to its end: then it is no typo, although its metrics may
come hours later. After that it takes more than half of the trials, and three at least.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.infra.texts import said
from jobs.rules.lifecycle.retry import INVALID_ARGUMENT, UNAVAILABLE
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.ended_trials import DELETED, counts_as_failed
from jobs.rules.tuning.lost_trials import counted
from jobs.rules.tuning.trials import FINISHED, Ending, TrialState
from jobs.rules.tuning.views import Outcome, TrialView, TuningView

FEW = 3


def too_many(view: TuningView) -> Outcome | None:
    """The end of the study, if too many trials have failed."""
    own = (each for each in _over(view) if not each.ending.by_hosts)
    over = sorted(own, key=_ended)
    failed = [each for each in over if counts_as_failed(each)]
    if view.max_failed:
        return _end(failed, len(over)) if len(failed) >= view.max_failed else None
    if over and _fails_as_first(over[0]) and not any(map(_came_to_its_end, view.trials)):
        return _end(over[:1], 1)
    if len(failed) >= max(FEW, view.parallel) and 2 * len(failed) > len(over):
        return _end(failed, len(over))
    return None


def all_infeasible(view: TuningView) -> Outcome | None:
    """The end of a study that has nothing to show."""
    over = _over(view)
    if not over or any(each.state is TrialState.SUCCEEDED for each in over):
        return None
    code = UNAVAILABLE if all(each.ending.by_hosts for each in over) else INVALID_ARGUMENT
    return _end(sorted(over, key=_ended), len(over), code)


def _over(view: TuningView) -> list[TrialView]:
    """Those that had their chance."""
    over = [each for each in counted(view.trials) if each.state in FINISHED]
    return [each for each in over if each.drawn or each.ending is Ending.GIVEN_UP]


def _fails_as_first(trial: TrialView) -> bool:
    """A first trial that measured nothing, to its end or to its timeout, shows the same mistake as one that failed. One
    whose job was deleted shows none."""
    ran = trial.job is JobState.SUCCEEDED or trial.ending is Ending.TIMEOUT
    silent = trial.state is TrialState.INFEASIBLE and ran
    return counts_as_failed(trial) or (silent and trial.reason != DELETED)


def _came_to_its_end(trial: TrialView) -> bool:
    """It succeeded, or will when the rest of its metrics is here."""
    waits = trial.state not in FINISHED and trial.job is JobState.SUCCEEDED
    return waits or trial.state is TrialState.SUCCEEDED


def _end(failed: Sequence[TrialView], over: int, code: int = INVALID_ARGUMENT) -> Outcome:
    first = failed[0]
    return Outcome(
        JobState.FAILED,
        code,
        said(
            "{count} of {over} trials failed. The first was trial {number}: {reason}",
            count=len(failed),
            over=over,
            number=first.number,
            reason=first.reason,
        ),
    )


def _ended(trial: TrialView) -> tuple[float, int]:
    return (trial.job_ended_at.timestamp() if trial.job_ended_at else 0.0, trial.number)
