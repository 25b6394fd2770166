"""Trials whose jobs failed by a fault of hosts: a host could not start them, was lost too often, or there was none.

Such a trial says nothing about its parameters. Another one tries them again, `TRIES` in all; those that are tried again
are in no count of the study. A study on broken hosts burns no trials: after `IN_A_ROW` such ends it waits, each time
longer, and then lets one trial at a time find out whether the hosts work again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from agents.infra.texts import join, said, said_of
from jobs.rules.lifecycle.retry import INTERNAL_CODE, RESOURCE_EXHAUSTED, UNAVAILABLE
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.tuning.trials import FINISHED, Ending
from jobs.rules.tuning.views import Pause, TrialChange, TrialView, TuningView

# Codes of the errors of jobs that no program caused.
FAULTS_OF_HOSTS = frozenset({RESOURCE_EXHAUSTED, INTERNAL_CODE, UNAVAILABLE})
# A point that hosts were lost under so often is given up: perhaps it is what breaks them.
TRIES = 3
IN_A_ROW = 3
# The first pause and the longest, in units of TRAINYARD_RETRY_WAIT_S.
FIRST_PAUSE, LONGEST_PAUSE = 12, 720


def end_of(lost: TrialView, change: TrialChange, trials: Iterable[TrialView]) -> None:
    """Note in the change of a trial that ends so whether its parameters are tried again. `trials`: the others."""
    before = [each for each in trials if each.state in FINISHED and _same_point(each, lost)]
    tries = sum(each.ending is Ending.HOSTS for each in before) % TRIES + 1
    change.ending = Ending.HOSTS if tries < TRIES else Ending.GIVEN_UP
    if change.ending is Ending.GIVEN_UP:
        next_one = said("It was the last of {count} such tries.", count=TRIES)
    elif lost.drawn:
        next_one = said("Another trial takes its place, with the same parameters.")
    else:
        next_one = said("Another trial takes its place.")
    change.reason = join(" ", [said("Hosts failed, not its program."), change.reason, next_one])


def counted(trials: Iterable[TrialView]) -> list[TrialView]:
    """Without those whose parameters are tried again."""
    return [each for each in trials if each.ending is not Ending.HOSTS]


def pause_of(view: TuningView) -> Pause | None:
    """None: the last trials to end show no broken hosts."""
    if not any(each.ending.by_hosts for each in view.trials):
        return None  # without sorting thousands of them
    lost = _last_in_a_row(view.trials)
    if len(lost) < IN_A_ROW:
        return None
    units = min(FIRST_PAUSE * 2 ** min(len(lost) - IN_A_ROW, 10), LONGEST_PAUSE)
    last = lost[0]
    until = last.job_ended_at and last.job_ended_at + timedelta(seconds=units * view.retry_wait_s)
    after = max(each.number for each in lost)
    tries = [each.number for each in view.trials if each.state not in FINISHED and each.number > after]
    return Pause(len(lost), last.number, last.reason, until, tuple(tries))


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
        next_one = said("The next one begins at {time}, alone.", time=f"{pause.until:%Y-%m-%d %H:%M:%S %Z}")
    return join(" ", [lost, next_one, said("Trial {number}: {why}", number=pause.last, why=pause.reason)])


def _last_in_a_row(trials: Sequence[TrialView]) -> list[TrialView]:
    """The trials that hosts failed since the last one that ended otherwise, the last first."""
    over = [each for each in trials if each.state in FINISHED and not _says_nothing(each)]
    found = []
    for each in sorted(over, key=_ended, reverse=True):
        if not each.ending.by_hosts:
            break
        found.append(each)
    return found


def _says_nothing(trial: TrialView) -> bool:
    """About hosts: somebody cancelled it."""
    return trial.job is JobState.CANCELLED and not trial.stopped_early and trial.ending is Ending.OWN


def _same_point(one: TrialView, other: TrialView) -> bool:
    return one.drawn == other.drawn and one.parameters == other.parameters


def _ended(trial: TrialView) -> tuple[float, int]:
    return (trial.job_ended_at.timestamp() if trial.job_ended_at else 0.0, trial.number)
