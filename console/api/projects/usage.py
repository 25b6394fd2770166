"""The usage of a month as JSON or CSV, and the audit: who changed what."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, NotRequired, TypedDict

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import ANYBODY, Id, Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.projects import audit, audit_export, usage_csv
from console.presenters.projects.usage import recent_lines
from jobs.models import AuditEntry, Project
from jobs.projects import usage
from jobs.rules.scheduling.usage_months import month_named, month_of

Document = dict[str, Any]
MAX_ENTRIES = 500


class UsageLine(TypedDict):
    project: str
    user: str
    acceleratorType: str
    gpuSeconds: float
    cpuSeconds: float


class Usage(TypedDict):
    month: str
    asOf: Time
    lines: list[UsageLine]
    gpuSeconds: float
    cpuSeconds: float


class AuditLine(TypedDict):
    id: Id
    time: Time
    actor: str
    what: str
    subjectKind: str
    subject: str
    project: str | None


FromTo = TypedDict("FromTo", {"from": Any, "to": Any})


class AuditEntryDocument(AuditLine, FromTo):
    """Who changed what: `from` what, `to` what."""


class AuditPage(TypedDict):
    """`nextBefore` is the same as `nextPageToken`, by the name that it had first."""

    entries: list[AuditEntryDocument]
    nextPageToken: NotRequired[Id]
    nextBefore: NotRequired[Id]


MONTH = Query(
    "month",
    "Such as 2026-11; this month if nothing is said.",
    Annotated[str, form(pattern="^[0-9]{4}-(0[1-9]|1[0-2])$")],
)
FOUND = (
    Query("project", "Only what happened in this project."),
    Query("subject", "Only what was done to the object with this name."),
    Query("kind", "Only what was done to objects of this kind: `job`, `host`, `person`."),
    Query("actor", "Only what this person did."),
    Query("what", "Only acts of this name."),
    Query("since", "Only from this day on.", Annotated[str, form(format="date")]),
    Query("until", "Only up to this day.", Annotated[str, form(format="date")]),
    *paged(MAX_ENTRIES, MAX_ENTRIES),
    Query("before", "The same as `pageToken`, by the name that it had first."),
)


class UsageView(TrainyardView):
    """`GET /api/v1/usage`, `GET /api/v1/projects/<p>/usage`, both `?month=2026-11&format=csv`."""

    @described(
        "Get the usage of a month",
        Usage,
        needs="see_usage",
        own=ANYBODY,
        query=(
            MONTH,
            Query("format", "JSON, or a file for spreadsheets.", Annotated[str, one_of(("json", "csv"))]),
        ),
        files=("text/csv",),
    )
    def get(self, request: Request, project: str | None = None) -> HttpResponseBase:
        if project is None:
            rows = list(access.visible(request.user, Project.objects.order_by("name")))
        else:
            rows = [access.project_or_404(request.user, "see_usage", project)]
        now = timezone.now()
        month, names = asked_month(request, now), {row.pk: row.name for row in rows}
        kind = request.query_params.get("format", "json")
        if kind == "csv":
            return usage_csv.csv_response(month, usage.report_by_job(month, names, now), names)
        if kind != "json":
            raise BadRequest("format", f"format must be json or csv, not {kind!r}.")
        return Response(document(month, names, now))

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` is our own parameter. Without this, the framework would look for a renderer with that name."""
        return super().perform_content_negotiation(request, force=True)


class AuditView(TrainyardView):
    """`GET /api/v1/audit?project=&subject=&kind=&actor=&what=&since=&until=&before=<id>`: the newest first.

    With `format=csv` or `format=jsonl`: all of them as a file.
    """

    @described(
        "List who changed what, the newest first",
        AuditPage,
        needs="see",
        query=(
            *FOUND,
            Query(
                "format",
                "JSON, or all of it as a file.",
                Annotated[str, one_of(("json", *audit_export.FORMATS))],
            ),
        ),
        files=("text/csv", "application/jsonl"),
    )
    def get(self, request: Request) -> HttpResponseBase:
        access.require(request.user, "see", AuditEntry)
        asked = _checked(request.query_params.dict())
        rows = audit.found(request.user, asked, logins=True)
        form = asked.get("format", "json")
        if form in audit_export.FORMATS:
            return audit_export.response(rows, form)
        if form != "json":
            raise BadRequest("format", f"format must be json, jsonl or csv, not {form!r}.")
        size = page_size(asked, MAX_ENTRIES, MAX_ENTRIES)
        page = list(rows[: size + 1])
        entries = [audit_export.document(row) for row in page[:size]]
        more = dict.fromkeys(("nextPageToken", "nextBefore"), entries[-1]["id"]) if len(page) > size else {}
        return Response({"entries": entries, **more})

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)


def _checked(query: dict[str, str]) -> dict[str, str]:
    """The filters. What the page takes for no filter is refused: a script would get entries that it did not ask for."""
    for name in ("since", "until"):
        if query.get(name) and audit.day(query[name]) is None:
            raise BadRequest(name, f"{name} must be a day such as 2026-11-21.")
    for name in ("before", "pageToken"):
        if query.get(name) and cursor_number(query[name]) is None:
            raise BadRequest(name, f"{name} must be a nextPageToken of an earlier answer.")
    return {**query, "before": query.get("pageToken") or query.get("before", "")}


def asked_month(request: Request, now: datetime) -> date:
    given = request.query_params.get("month", "")
    month = month_named(given) if given else month_of(now)
    if month is None:
        raise BadRequest("month", f"month must be written as 2026-11, not {given!r}.")
    return month


def document(month: date, projects: dict[int, str], now: datetime) -> Document:
    lines = recent_lines(month, projects, now)
    return {
        "month": f"{month:%Y-%m}",
        "asOf": format_time(now),
        "lines": [
            {
                "project": projects[line.project],
                "user": line.owner_name,
                "acceleratorType": line.accelerator_type,
                "gpuSeconds": round(line.gpu_seconds, 3),
                "cpuSeconds": round(line.cpu_seconds, 3),
            }
            for line in lines
        ],
        "gpuSeconds": round(sum(line.gpu_seconds for line in lines), 3),
        "cpuSeconds": round(sum(line.cpu_seconds for line in lines), 3),
    }
