"""The usage of a month as JSON or CSV, and the audit: who changed what."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.projects import audit, audit_export, usage_csv
from console.presenters.projects.usage import recent_lines
from jobs.models import AuditEntry, Project
from jobs.projects import usage
from jobs.rules.scheduling.usage_months import month_named, month_of

Document = dict[str, Any]
MAX_ENTRIES = 500


class UsageView(TrainyardView):
    """`GET /api/v1/usage`, `GET /api/v1/projects/<p>/usage`, both `?month=2026-11&format=csv`."""

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

    def get(self, request: Request) -> HttpResponseBase:
        access.require(request.user, "see", AuditEntry)
        rows = audit.found(request.user, request.query_params.dict(), logins=True)
        form = request.query_params.get("format", "json")
        if form in audit_export.FORMATS:
            return audit_export.response(rows, form)
        if form != "json":
            raise BadRequest("format", f"format must be json, jsonl or csv, not {form!r}.")
        page = list(rows[: MAX_ENTRIES + 1])
        entries = [audit_export.document(row) for row in page[:MAX_ENTRIES]]
        more = {"nextBefore": entries[-1]["id"]} if len(page) > MAX_ENTRIES else {}
        return Response({"entries": entries, **more})

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)


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
