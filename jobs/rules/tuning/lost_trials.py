"""Trials whose jobs failed by a fault of hosts: a host could not start them, was lost too often, or there was none.

Such a trial says nothing about its parameters. Another one tries them again, `TRIES` in all; those that are tried again
are in no count of the study. A study on broken hosts burns no trials: after `IN_A_ROW` such ends it waits, each time
longer, and then lets one trial at a time find out whether the hosts work again. Trials that found no place show no
broken host, and nothing waits after them. A study that shows no sign of hope asks for no more trials (`hopeless`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from agents.infra.texts import join, moment, said, said_of
from jobs.rules.lifecycle.retry import INTERNAL_CODE, RESOURCE_EXHAUSTED, UNAVAILABLE
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.tuning.space import key
from jobs.rules.tuning.trials import FINISHED, Ending
from jobs.rules.tuning.views import Outcome, Pause, TrialChange, TrialView, TuningView

# Codes of the errors of jobs that no program caused.
FAULTS_OF_HOSTS = frozenset({RESOURCE_EXHAUSTED, INTERNAL_CODE, UNAVAILABLE})
# A point that hosts were lost under so often is given up: perhaps it is what breaks them.
TRIES = 3
IN_A_ROW = 3
# The first pause and the longest, in units of TRAINYARD_RETRY_WAIT_S.
FIRST_PAUSE, LONGEST_PAUSE = 12, 720
# So many in a row, and as many as may run at once: then a study is given up that found no place for any of them; or
# where no trial ever ended otherwise, since so many units: the document itself may be what no host can start.
MOST_IN_A_ROW, LONGEST_ROW = 10, 2 * LONGEST_PAUSE


def end_of(lost: TrialView, change: TrialChange, trials: Sequence[TrialView], goes_on: bool) -> None:
    """Note in the change of a trial that ends so whether its parameters are tried again. `trials`: the others.
    `goes_on`: the study."""
    told = said("It found no place.") if lost.no_place else said("Hosts failed, not its program.")
    sentences = [told, change.reason]
    if not goes_on or lost.stopped_early:
        change.ending = Ending.GIVEN_UP
    elif lost.drawn and _tries_before(lost, trials) + 1 >= TRIES:
        change.ending = Ending.GIVEN_UP
        sentences.append(said("It was the last of {count} such tries.", count=TRIES))
    else:
        change.ending = Ending.HOSTS
        # What another trial has is not drawn again (`search/rows.py`).
        if lost.drawn and not any(_same_point(each, lost) for each in counted(trials)):
            sentences.append(said("Another trial takes its place, with the same parameters."))
        else:
            sentences.append(said("Another trial takes its place."))
    change.reason = join(" ", sentences)


def _tries_before(lost: TrialView, trials: Iterable[TrialView]) -> int:
    """How often hosts failed under its parameters since these were given up last."""
    tries = 0
    for each in sorted(trials, key=lambda each: each.number):
        if each.state in FINISHED and _same_point(each, lost):
            tries = 0 if each.ending is Ending.GIVEN_UP else tries + (each.ending is Ending.HOSTS)
    return tries


def counted(trials: Iterable[TrialView]) -> list[TrialView]:
    """Without those whose parameters are tried again."""
    return [each for each in trials if each.ending is not Ending.HOSTS]


def pause_of(view: TuningView) -> Pause | None:
    """None: the last trials to end show no broken hosts."""
    if not any(each.ending.by_hosts for each in view.trials):
        return None  # without sorting thousands of them
    lost = [each for each in _last_in_a_row(view.trials) if not each.no_place]
    if len(lost) < IN_A_ROW:
        return None
    units = min(FIRST_PAUSE * 2 ** min(len(lost) - IN_A_ROW, 10), LONGEST_PAUSE)
    last = lost[0]
    until = last.job_ended_at and last.job_ended_at + timedelta(seconds=units * view.retry_wait_s)
    after = max(each.number for each in lost)
    tries = [each.number for each in view.trials if each.state not in FINISHED and each.number > after]
    return Pause(len(lost), last.number, last.reason, until, tuple(tries))


def hopeless(view: TuningView) -> Outcome | None:
    """The end of a study that asks for no more trials, when those that run end no better."""
    if not any(each.ending.by_hosts for each in view.trials):
        return None
    lost = _last_in_a_row(view.trials)
    most = max(MOST_IN_A_ROW, view.parallel)
    if len(lost) < most:
        return None
    number, why = lost[0].number, lost[0].reason
    if all(each.no_place for each in lost[:most]):
        told = said("Its last {count} trials found no place.", count=most)
        code = RESOURCE_EXHAUSTED
    elif len(lost) == len(_over(view.trials)) and _lasts(lost, view.retry_wait_s):
        told = said("Hosts failed under all {count} trials that ended.", count=len(lost))
        code = UNAVAILABLE
    else:
        return None
    last = said("Trial {number}: {why}", number=number, why=why)
    return Outcome(JobState.FAILED, code, join(" ", [told, last]))


def _lasts(lost: Sequence[TrialView], unit_s: float) -> bool:
    """Many that hosts failed under at once may have been one accident."""
    return _ended(lost[0])[0] - _ended(lost[-1])[0] >= LONGEST_ROW * unit_s


def may_try(pause: Pause, view: TuningView, now: datetime) -> bool:
    """Whether one may begin: none is out that began since, and the time is over. A moment that is farther away than the
    longest pause shows that the clock was set back."""
    longest = timedelta(seconds=LONGEST_PAUSE * view.retry_wait_s)
    return not pause.trying and (pause.until is None or not now < pause.until <= now + longest)


def pause_text(pause: Pause) -> str:
    lost = said("Hosts failed under the last {count} trials.", count=pause.lost)
    if pause.trying:
        next_one = said_of(
            len(pause.trying),
            "Trial {numbers} shows whether they work again; before it ends, no other begins.",
            "Trials {numbers} show whether they work again; before they end, no other begins.",
            numbers=list_text([str(each) for each in pause.trying]),
        )
    else:
        assert pause.until is not None, "without it, one has begun"
        next_one = said("The next one begins at {time}, alone.", time=moment(pause.until))
    return join(" ", [lost, next_one, said("Trial {number}: {why}", number=pause.last, why=pause.reason)])


def _last_in_a_row(trials: Sequence[TrialView]) -> list[TrialView]:
    """The trials that hosts failed since the last one that ended otherwise, the last first."""
    found = []
    for each in sorted(_over(trials), key=_ended, reverse=True):
        if not each.ending.by_hosts:
            break
        found.append(each)
    return found


def _over(trials: Iterable[TrialView]) -> list[TrialView]:
    """Those whose ends show whether hosts work."""
    return [each for each in trials if each.state in FINISHED and not _says_nothing(each)]


def _says_nothing(trial: TrialView) -> bool:
    """About hosts: somebody cancelled it."""
    return trial.job is JobState.CANCELLED and not trial.stopped_early and trial.ending is Ending.OWN


def _same_point(one: TrialView, other: TrialView) -> bool:
    return one.drawn and other.drawn and key(one.parameters) == key(other.parameters)


def _ended(trial: TrialView) -> tuple[float, int]:
    return (trial.job_ended_at.timestamp() if trial.job_ended_at else 0.0, trial.number)
