"""What the programs of a job reported: `GET /api/v1/jobs/<id>/reports[?replica=&run=&name=&source=]`, each metric of
each run with its points in the order of their steps.

Of very many points the answer has those of the first series; `truncated` is true then. Ask for one name or run.
"""

from __future__ import annotations

from typing import Any, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Query, Time, described
from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from jobs.metrics.curves import points_of, series_of
from jobs.models import Job, MetricPoint, MetricSeries, MetricsProof
from jobs.rules.metrics.journal import LOG, SOURCES

MAX_POINTS = 40_000
WAYS = (*SOURCES, LOG)


class ReportedPoint(TypedDict):
    """`notNumber`: NaN, Infinity or -Infinity; then there is no `value`."""

    step: int
    value: float | None
    notNumber: str
    time: Time


class ReportedSeries(TypedDict):
    """One metric of one run. `reports`: how many there were; of very many, some are among the points. `last`: the
    newest; `lowest` and `highest` are of all reports that are numbers."""

    run: str
    replica: str
    source: str
    name: str
    reports: int
    last: ReportedPoint
    lowest: float | None
    highest: float | None
    points: list[ReportedPoint]


class Reports(TypedDict):
    """`complete`: all runs are over, and all that their hosts have is here."""

    series: list[ReportedSeries]
    complete: bool
    truncated: bool


ASKED = (
    Query("replica", "Only those of this replica."),
    Query("run", "Only those of this run."),
    Query("name", "Only the metric of this name."),
    Query("source", "Only what was reported in this way: " + ", ".join(WAYS) + "."),
)


class ReportsView(TrainyardView):
    @described("List the metrics that the programs of a job reported", Reports, needs="see", query=ASKED)
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        query = request.query_params.dict()
        runs = resources.requested_runs(job, query)
        if (source := query.get("source", "")) and source not in WAYS:
            raise BadRequest("source", f"source must be one of {', '.join(WAYS)}.")
        found = series_of(runs, query.get("name", "")[:200], source)
        points, truncated = points_of(found, MAX_POINTS)
        whole = (MetricsProof.NONE, MetricsProof.WHOLE)
        return Response(
            {
                "series": [_series(each, points.get(each.pk, [])) for each in found],
                "complete": not runs.exclude(metrics_proof__in=whole).exists(),
                "truncated": truncated,
            }
        )


def _series(row: MetricSeries, points: list[MetricPoint]) -> dict[str, Any]:
    return {
        "run": row.run_id,
        "replica": row.run.replica.name,
        "source": row.source,
        "name": row.name,
        "reports": row.reports,
        "last": _point(row),
        "lowest": row.lowest,
        "highest": row.highest,
        "points": [_point(point) for point in points],
    }


def _point(row: MetricPoint | MetricSeries) -> dict[str, Any]:
    return {"step": row.step, "value": row.value, "notNumber": row.odd, "time": format_time(row.at)}
