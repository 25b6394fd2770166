"""What each rule that stops trials early would have done with a trial, noted once when the trial is over.

The sweep does it, so no decision waits for it: one of the rules learns a model.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import Q
from django.utils.module_loading import import_string

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from jobs.models import Trial, TuningJob
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import snapshot

log = logging.getLogger(__name__)
# So many trials are noted at a time, and each is compared with so many others of its study.
AT_ONCE, OTHERS = 10, 300


def note(now: datetime) -> int:
    """Note the verdicts on trials that have ended since the last call. Returns how many trials these were.

    The newest first: those of years before an upgrade keep no study waiting that somebody looks at."""
    todo = Trial.objects.filter(shadow__isnull=True, ended_at__isnull=False).order_by("-pk")
    of_study: dict[int, list[int]] = defaultdict(list)
    for pk, study in todo.values_list("pk", "tuning_job")[:AT_ONCE]:
        of_study[study].append(pk)
    for study, pks in of_study.items():
        _note(study, pks)
    return sum(map(len, of_study.values()))


def _note(study: int, pks: Sequence[int]) -> None:
    """Each verdict is written on its own, and a trial that no rule can judge has none: so it holds up no other."""
    left = set(pks)
    try:
        for pk, verdict in _verdicts(TuningJob.every.get(pk=study), pks):
            Trial.objects.filter(pk=pk).update(shadow=_found(pk, verdict))
            left.remove(pk)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        log.exception("The rules that stop trials early cannot judge trials of study %s.", study)
        Trial.objects.filter(pk__in=left).update(shadow={})


def _found(pk: int, verdict: Callable[[], dict[str, float]]) -> dict[str, float]:
    try:
        return verdict()
    except Exception:
        log.exception("The rules that stop trials early cannot judge the trial in row %s.", pk)
        return {}


def _verdicts(
    tuning_job: TuningJob, pks: Sequence[int]
) -> Iterator[tuple[int, Callable[[], dict[str, float]]]]:
    # By name: one of the rules imports numpy (drawing.py).
    ended, verdicts = map(
        import_string,
        (f"jobs.rules.tuning.stopping.shadow.{name}" for name in ("Ended", "verdicts")),
    )
    study = snapshot.study_of(tuning_job)
    rows = Trial.objects.filter(tuning_job=tuning_job).select_related("job").defer("job__spec")
    others = _others(tuning_job) if len(study.objectives) == 1 else []
    of_trial: dict[int, Any] = {
        row.pk: ended(
            snapshot.tried(row, snapshot.read_measurements(row.measurements)),
            row.started_at.timestamp() if row.started_at else 0.0,
            row.ended_at.timestamp() if row.ended_at else 0.0,
        )
        for row in rows.filter(Q(pk__in=[*pks, *others]))
    }
    compared = [of_trial[pk] for pk in others]
    for pk in pks:
        yield pk, partial(verdicts, study, of_trial[pk], compared)


def _others(tuning_job: TuningJob) -> list[int]:
    """The trials that ran to their end; where there are many, evenly over the time of the study."""
    ran = Trial.objects.filter(tuning_job=tuning_job, state=TrialState.SUCCEEDED, stopped_early="")
    pks = list(ran.exclude(ended_at=None).order_by("ended_at", "pk").values_list("pk", flat=True))
    if len(pks) <= OTHERS:
        return pks
    return [pks[place * len(pks) // OTHERS] for place in range(OTHERS)]
