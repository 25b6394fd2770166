"""The metrics of a job as lines for charts: `GET /api/v1/jobs/<id>/metrics`, as JSON or CSV. The answer is bounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Query, Time, described, form, one_of
from console.api.errors import BadRequest
from console.api.times import format_time, parse_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.metrics.metric_lines import POINTS, SAMPLE_S, SPANS
from console.presenters.metrics.metric_marks import Mark
from console.presenters.metrics.metrics import MOST_LINES, Asked, Chart, Metrics, metrics
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL

MOST_NAMED = 1_000


class MetricLine(TypedDict):
    """`values`: one for each step, null where nothing is known. `gpu`: its place among those of the replica."""

    name: str
    replica: str | None
    gpu: int | None
    values: list[float | None]


class MetricDocument(TypedDict):
    """`ofHost`: of the whole host, and not of the replica. `top`: what it cannot exceed, if that is known."""

    name: str
    unit: str
    ofHost: bool
    top: float | None
    lines: list[MetricLine]


class MetricEvent(TypedDict):
    time: Time
    kind: str
    subject: str
    state: str
    attempt: int | None
    text: str
    count: int


class MetricSpan(TypedDict):
    """`bands`: the lines are the least, the median and the most of all. `thinned`: not each sample was read."""

    step: int
    count: int
    firstSampleTime: Time | None
    lastSampleTime: Time | None
    running: bool
    bands: bool
    thinned: bool
    metrics: list[MetricDocument]
    events: list[MetricEvent]


FromTo = TypedDict("FromTo", {"from": Time, "to": Time})


class MetricsDocument(MetricSpan, FromTo):
    """Lines for charts, from `from` on, `count` values of `step` seconds each."""


ASKED = (
    Query("span", "The last hour, the last day, or all.", Annotated[str, one_of(SPANS)]),
    Query("from", "In place of a span: from this time on.", Time),
    Query("to", "Up to this time.", Time),
    Query("step", "So many seconds for each value.", Annotated[int, form(minimum=SAMPLE_S, maximum=604_800)]),
    Query("replicas", "Only these, with commas between them."),
    Query(
        "bands",
        "1: the least, the median and the most; 0: a line for each.",
        Annotated[str, one_of(("0", "1"))],
    ),
    Query("format", "JSON, or a file for spreadsheets.", Annotated[str, one_of(("json", "csv"))]),
)


class MetricsView(TrainyardView):
    """`?span=day&from=&to=&step=&replicas=a,b&bands=1&format=csv`, all optional."""

    @described(
        "Get what the replicas of a job used, as lines for charts",
        MetricsDocument,
        needs="see",
        query=ASKED,
        files=("text/csv",),
    )
    def get(self, request: Request, job_id: str) -> HttpResponseBase:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        query = request.query_params
        kind = query.get("format", "json")
        if kind not in ("json", "csv"):
            raise BadRequest("format", f"format must be json or csv, not {kind[:20]!r}.")
        asked = asked_of(job, query)
        found = metrics(job, asked, timezone.now())
        return _csv(job, found) if kind == "csv" else Response(document(job, found))

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` is our own parameter. Without this, the framework would look for a renderer with that name."""
        return super().perform_content_negotiation(request, force=True)


def asked_of(job: Job, query: Mapping[str, str]) -> Asked:
    start, end = _time(query, "from"), _time(query, "to")
    if start and end and not start < end:
        raise BadRequest("to", "to must be later than from.")
    if end and not start:
        start = end - timedelta(hours=1)
    step, now = _step(query.get("step", "")), timezone.now()
    span = query.get("span", "hour")
    if span not in SPANS:
        raise BadRequest("span", f"span must be one of {', '.join(SPANS)}.")
    length = (end or now) - start if start else SPANS[span] or now - job.created_at
    if step and length.total_seconds() / step > POINTS:
        raise BadRequest("step", f"step must be larger: an answer has at most {POINTS} steps.")
    replicas = _replicas(job, query.get("replicas", ""))
    bands = _flag(query.get("bands", ""))
    if bands is False and (len(replicas) or job.replicas.count()) > MOST_LINES:
        raise BadRequest(
            "bands",
            f"bands=0 is possible for {MOST_LINES} replicas at most: name them in replicas, or leave bands out.",
        )
    return Asked(start, end, step, replicas, bands, span)


def _replicas(job: Job, value: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(name for name in value.split(",") if name))[:MOST_NAMED]
    known = set(job.replicas.filter(name__in=names).values_list("name", flat=True)) if names else set()
    for name in names:
        if name not in known:
            resources.requested_replica(job, name, "replicas")
    return tuple(names)


def document(job: Job, found: Metrics) -> dict[str, Any]:
    return {
        "from": _moment(found.span.start),
        "to": _moment(found.span.end),
        "step": found.span.step,
        "count": found.span.count,
        "firstSampleTime": format_time(found.first) if found.first else None,
        "lastSampleTime": format_time(found.last) if found.last else None,
        "running": job.state not in TERMINAL,
        "bands": found.bands,
        "thinned": found.thinned,
        "metrics": [_chart(chart) for chart in found.charts],
        "events": [_mark(mark) for mark in found.marks],
    }


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "name": chart.metric.name,
        "unit": chart.metric.unit.value,
        "ofHost": chart.metric.of_host,
        "top": chart.top,
        "lines": [
            {"name": line.name, "replica": line.replica, "gpu": line.gpu, "values": line.values}
            for line in chart.lines
        ],
    }


def _mark(mark: Mark) -> dict[str, Any]:
    return {
        "time": format_time(mark.at),
        "kind": mark.kind,
        "subject": mark.subject,
        "state": mark.state,
        "attempt": mark.attempt,
        "text": mark.text,
        "count": mark.count,
    }


def _csv(job: Job, found: Metrics) -> HttpResponse:
    """A row for each step, a column for each line: what spreadsheets and pandas read."""
    lines = [(chart.metric, line) for chart in found.charts for line in chart.lines]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", *(f"{metric.name} [{metric.unit.value}] {line.name}" for metric, line in lines)])
    for at in range(found.span.count):
        moment = _moment(found.span.start + at * found.span.step)
        writer.writerow([moment, *(line.values[at] for _metric, line in lines)])
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="trainyard-metrics-{job.pk}.csv"'
    return response


def _moment(seconds: int) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _time(query: Mapping[str, str], name: str) -> datetime | None:
    value = query.get(name, "")
    found = parse_time(value.replace(" ", "+")) if value else None  # a plus sign that was not escaped
    if value and (found is None or not 1970 <= found.year < 3000):
        raise BadRequest(name, f"{name} must be a time such as 2026-11-21T20:00:00Z.")
    return found


def _step(value: str) -> int:
    if not value:
        return 0
    if not value.isascii() or not value.isdigit() or not SAMPLE_S <= int(value[:12]) <= 604_800:
        raise BadRequest("step", f"step must be a whole number of seconds, from {SAMPLE_S} to 604800.")
    return int(value)


def _flag(value: str) -> bool | None:
    if value not in ("", "0", "1"):
        raise BadRequest("bands", "bands must be 1 or 0, or left out.")
    return None if value == "" else value == "1"
