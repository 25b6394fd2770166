"""What is in no sum of usage yet, added up by the database: what thousands of live runs hold is a few numbers then.

Live runs and the usage rows that are not folded yet are read by one statement. So a run that ends meanwhile is in
one of the two, never in both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from django.db.models import DateTimeField, F, FloatField, Func, IntegerField, Q, QuerySet, Sum, Value
from django.db.models.functions import Greatest, Least, Power

from agents.infra.sql import Parameter, SelectStatement
from jobs.models import Job, MonthlyUse, Run, Usage
from jobs.rules.scheduling.fairness import HALF_LIFE_S
from jobs.rules.scheduling.usage_months import GPUS_OF_A_CPU, begin, following, month_of

MEAN_LIFE_S = HALF_LIFE_S / math.log(2)


class ListLength(Func):
    """How many entries a JSON list has."""

    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, function="json_array_length", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, function="jsonb_array_length", **extra)


class Seconds(Func):
    """The length of a time as a number."""

    output_field = FloatField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="((%(expressions)s) / 1000000.0)", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="CAST(EXTRACT(EPOCH FROM %(expressions)s) AS float8)", **extra
        )


def decayed_use(now: datetime) -> dict[int, float]:
    """How much of it counts for the share of each project now."""
    live = Run.objects.filter(released_at=None).order_by()
    live = live.annotate(
        amount=ListLength("gpu_uuids") + F("cpus") * GPUS_OF_A_CPU,
        used=F("amount") * (1.0 - _left(F("created_at"), now)),
    )
    over = Usage.objects.filter(folded=False).order_by()
    over = over.annotate(
        amount=F("gpus") + F("cpus") * GPUS_OF_A_CPU,
        used=F("amount") * (_left(F("ended_at"), now) - _left(F("began_at"), now)),
    )
    of_live = live.values_list("job__project").annotate(Sum("used"))
    found: dict[int, float] = defaultdict(float)
    for project, used in of_live.union(over.values_list("project").annotate(Sum("used")), all=True):
        found[project] += used * MEAN_LIFE_S
    return found


def _left(moment: Any, now: datetime) -> Any:
    """Which part is left now of what was used at that moment. Of what lies ahead, all."""
    ago = Greatest(Seconds(Value(now) - moment), Value(0.0))
    return Power(Value(0.5), ago / HALF_LIFE_S, output_field=FloatField())


def gpu_seconds_this_month(projects: Collection[int], now: datetime) -> dict[tuple[int, int | None], float]:
    """The GPU-seconds of this month by project and owner, up to now: folded, not folded yet, and live."""
    month = month_of(now)
    first, last = Value(begin(month)), Value(begin(following(month)))
    of_live = (
        _live_runs(projects)
        # Not as a filter, as below: PostgreSQL would compute it of all live runs, before it looks whose they are.
        .annotate(held_s=Greatest(Seconds(Value(now) - Greatest("created_at", first)), Value(0.0)))
        .annotate(of_gpus=F("held_s") * ListLength("gpu_uuids"))
        .values_list("job__project", "job__owner")
    )
    over = Usage.objects.filter(folded=False, project__in=projects).order_by()
    of_over = over.annotate(
        of_gpus=Seconds(Least("ended_at", last) - Greatest("began_at", first)) * F("gpus")
    ).values_list("project", "owner")
    folded = MonthlyUse.objects.filter(project__in=projects, month=month).order_by()
    of_folded: QuerySet[Any, Any] = folded.values_list("project", "owner").annotate(Sum("gpu_seconds"))
    rows = of_folded.union(
        of_live.annotate(Sum("of_gpus")),
        of_over.filter(of_gpus__gt=0).annotate(Sum("of_gpus")),
        all=True,
    )
    found: dict[tuple[int, int | None], float] = defaultdict(float)
    wanted = set(projects)
    for project, owner, seconds in rows:
        if project in wanted:
            found[project, owner] += seconds
    return found


def _live_runs(projects: Collection[int]) -> QuerySet[Any, Any]:
    """The live runs of one project; of several, all that there are: PostgreSQL would read all jobs that these ever
    had."""
    live = Run.objects.filter(released_at=None).order_by()
    if len(projects) != 1:
        return live
    # The ids of its jobs come from an index alone. A row of a job is read for each of its live runs only.
    jobs = Job.every.filter(project__in=projects).order_by().values("pk")
    return live.filter(job__in=jobs)


def _of_trials(which: Callable[[QuerySet[Any, Any]], QuerySet[Any, Any]]) -> QuerySet[Any, Any]:
    """What trials hold, each run of its own, and what they have held. A run with a row holds nothing any more."""
    now = Parameter("now", DateTimeField())
    live = which(Run.objects.filter(released_at=None, usage=None)).order_by()
    of_live = live.annotate(
        of_gpus=Greatest(Seconds(now - F("created_at")), Value(0.0)) * ListLength("gpu_uuids"),
        is_live=Value(1),
    )
    over = which(Usage.objects.all()).order_by().values("gpus")
    of_over = over.annotate(of_gpus=Seconds(Sum(F("ended_at") - F("began_at"))) * F("gpus"), is_live=Value(0))
    columns = ("of_gpus", "is_live")
    both: QuerySet[Any, Any] = of_live.values_list(*columns)
    return both.union(of_over.values_list(*columns), all=True)


_STUDY, _NUMBER = "job__trial_row__tuning_job", "job__trial_row__number__among"
_of_these_trials = SelectStatement(
    lambda: _of_trials(
        lambda rows: rows.filter(**{_STUDY: Parameter("study"), _NUMBER: Parameter("numbers")})
    )
)
_of_other_trials = SelectStatement(
    lambda: _of_trials(
        lambda rows: rows.filter(~Q(**{_NUMBER: Parameter("numbers")}), **{_STUDY: Parameter("study")})
    )
)


def gpu_seconds_of_trials(
    study: int, numbers: Collection[int], now: datetime, others: bool = False
) -> tuple[float, bool]:
    """The GPU-seconds of the trials with these numbers together, up to now, or of all others of the study; and whether
    one of them still holds GPUs."""
    read = _of_other_trials if others else _of_these_trials
    rows = read(study=study, numbers=numbers, now=now)
    return sum(seconds for seconds, _is_live in rows), any(is_live for _seconds, is_live in rows)
