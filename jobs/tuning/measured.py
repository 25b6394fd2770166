"""What the programs of trials reported, as measurements: from the series that their runs have stored.

Only the reports of the primary replica count; where it has none, those of the other replicas are taken. A value that a
later run reported at the same step takes the place of the earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import F, Q

from jobs.metrics import curves
from jobs.models import Job, MetricSeries, Run
from jobs.rules.metrics.journal import LOG
from jobs.rules.tuning.trials import Measurement

# Of so many points of all trials that are looked at together.
MOST_POINTS = 200_000


@dataclass(frozen=True, slots=True)
class Measured:
    """`measurements` by step. `names` of all metrics that were reported. `whole`: nothing more will come."""

    measurements: tuple[Measurement, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = True


NOTHING = Measured()


@dataclass(slots=True)
class _Step:
    elapsed_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


def of_jobs(jobs: Iterable[Job], names: Collection[str]) -> Mapping[int, Measured]:
    """By job. `names`: the metrics that are measured; others are only named."""
    by_id = {job.pk: job for job in jobs}
    if not by_id:
        return {}
    runs = Run.objects.filter(job__in=by_id)
    behind = set(runs.filter(_is_behind()).values_list("job", flat=True))
    series: dict[int, list[MetricSeries]] = defaultdict(list)
    for each in curves.series_of(runs):
        series[each.run.job_id].append(each)
    return {
        pk: _measured(job, series[pk], names, pk not in behind)
        for pk, job in by_id.items()
        if series[pk] or pk in behind
    }


def _is_behind() -> Q:
    """Runs of which something may still come: from their host, or out of their log. Of a host that was declared gone
    nothing is waited for: a study would hang on a machine that is never seen again."""
    gone = Q(declared_lost_at__isnull=False, proved_at=None)
    coming = Q(metrics_proof="", forgotten_at=None)
    unread = Q(metrics_read__isnull=False) & (Q(metrics_read__lt=F("log_stored")) | Q(log_complete_at=None))
    return (coming | unread) & ~gone


def _measured(job: Job, series: Sequence[MetricSeries], names: Collection[str], whole: bool) -> Measured:
    measured = [each for name in names for each in _that_count([one for one in series if one.name == name])]
    points, _ = curves.points_of(measured, MOST_POINTS)
    steps: dict[int, _Step] = defaultdict(_Step)
    for each in measured:
        for point in points.get(each.pk, ()):
            step = steps[point.step]
            step.metrics[each.name] = float(point.odd) if point.value is None else point.value
            if job.started_at is not None:
                step.elapsed_s = max((point.at - job.started_at).total_seconds(), 0.0)
    found = tuple(Measurement(number, step.metrics, step.elapsed_s) for number, step in sorted(steps.items()))
    return Measured(found, tuple(sorted({each.name for each in series})), whole)


def _that_count(series: Sequence[MetricSeries]) -> list[MetricSeries]:
    """Of one metric, the series of one replica and one way to report, in the order of its runs."""
    if not series:
        return []
    first = min(
        series,
        key=lambda each: (each.run.replica.pool, each.run.replica.index, each.source == LOG, each.source),
    )
    of_replica = [each for each in series if each.run.replica_id == first.run.replica_id]
    return [each for each in of_replica if each.source == first.source]
