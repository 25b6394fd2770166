"""What the next trials of a study are expected to bring, noted when the study has changed.

The sweep does it: the model imports numpy, which the processes that render pages do without.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.utils.module_loading import import_string

from jobs.models import TuningJob
from jobs.rules.tuning.price import Outlook
from jobs.tuning import prior_studies, snapshot
from jobs.wake import announce

# So many studies are looked at in one go, and each at most so often.
AT_ONCE, EVERY = 2, timedelta(seconds=60)
# Of which numbers of further trials people may ask, and of which they are told first.
COUNTS, SHOWN = (1, 2, 3, 5, 10, 15, 20, 30), (5, 10, 20)


def note(now: datetime) -> int:
    """Returns how many studies had changed."""
    changed = Q(outlook_at__lt=F("updated_at")) & Q(outlook_at__lt=now - EVERY)
    stale = Q(outlook_at=None) | changed
    found = list(TuningJob.objects.filter(stale).select_related("project").order_by("-pk")[:AT_ONCE])
    for tuning_job in found:
        # First: a study that cannot be looked at is not tried for ever.
        TuningJob.every.filter(pk=tuning_job.pk).update(outlook_at=now)
        outlook = _outlook(tuning_job)
        if outlook != tuning_job.outlook:
            TuningJob.every.filter(pk=tuning_job.pk).update(outlook=outlook)
            announce.hint(f"tuning:{tuning_job.pk}")
    return len(found)


def read(tuning_job: TuningJob, metric: str = "") -> list[Outlook]:
    """Those of all objectives, or of one."""
    first = str(tuning_job.study["metrics"][0]["metricId"]) if tuning_job.outlook else ""
    found = [Outlook(**{"metric": first, **each}) for each in tuning_job.outlook or ()]
    return [each for each in found if not metric or each.metric == metric]


def _outlook(tuning_job: TuningJob) -> list[dict[str, Any]]:
    # By name: it imports numpy (drawing.py).
    outlooks = import_string("jobs.rules.tuning.search.gain.outlooks")
    study = snapshot.study_of(tuning_job)
    earlier = prior_studies.trials_of(tuning_job) if study.prior else ()
    rows = snapshot.study_rows(snapshot.trials_of(tuning_job), earlier)
    if len(study.metrics) > len(study.objectives):
        return []  # the model of the gain knows no thresholds
    return [
        {**asdict(each), "metric": metric.name}
        for metric in study.objectives
        for each in outlooks(replace(study, metrics=(metric,)), rows, tuning_job.seed, COUNTS)
    ]
