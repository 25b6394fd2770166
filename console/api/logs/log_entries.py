"""The logs of jobs as Cloud Logging has them, at `/v2/entries:list`. `gcloud ai custom-jobs stream-logs` polls it.

A request reads for half a second at most, and a person has one at a time for each job. Then the answer has what was
found by then, which may be nothing, and a `nextPageToken` if there is more to look at.

A poll goes on after the time of the last entry, by the host's clock. So after a host's clock was set back, lines up to
the old time are left out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.logs.entry_filter import EntryCondition, parse
from console.api.logs.merged_logs import (
    SECOND,
    BadToken,
    Found,
    MergedLogs,
    Place,
    read_token,
    write_token,
)
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import GoogleView
from console.auth import access
from jobs.logs.search_budget import SearchBudget
from jobs.models import Job, Run

Document = dict[str, Any]

PAGE_SIZE, MAX_PAGE_SIZE = 50, 1000
MAX_PAGE_BYTES = 4 * 1024 * 1024
# Of a job with more runs than this, a replica must be named: each log is opened once, and has a place in the token.
MAX_RUNS = 500
MAX_NAMED = 20
NEWEST, OLDEST = "timestamp desc", "timestamp asc"


class EntriesView(GoogleView):
    """`POST /v2/entries:list {"resourceNames": ["projects/P"], "filter", "orderBy", "pageSize", "pageToken"}`."""

    def post(self, request: Request) -> Response:
        body = RequestBody(
            request, "resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken"
        )
        wanted = parse(body.text("filter", ""))
        order = " ".join(body.text("orderBy", OLDEST).split()) or OLDEST
        if order not in (OLDEST, NEWEST):
            raise BadRequest("orderBy", f"orderBy must be {OLDEST!r} or {NEWEST!r}, not {order!r}.")
        size = _page_size(body)
        places = _places(body.text("pageToken", ""), order)
        job = _job(request, body, wanted)
        with SearchBudget(request.user.pk, (job.pk, "entries")) as budget:
            logs = MergedLogs(_runs(job, wanted), wanted.low, wanted.high, order == NEWEST, places)
            page = _page(job, logs, wanted, size, budget)
        if not logs.over():
            page["nextPageToken"] = write_token(order, logs.places())
        return Response(page)


def _page(job: Job, logs: MergedLogs, wanted: EntryCondition, size: int, budget: SearchBudget) -> Document:
    """At most `size` entries, fewer where they are long or hard to find. Each page comes further than the one before,
    by at least one step."""
    page: list[Document] = []
    weight, stop = 0, False
    while not logs.over() and not stop:
        found = logs.step()
        if found is not None:
            document = _document(job, found)
            if wanted.holds(document):
                page.append(document)
                weight += len(document["textPayload"])
        stop = len(page) == size or weight > MAX_PAGE_BYTES or budget.spent()
    return {"entries": page} if page else {}


def _document(job: Job, found: Found) -> Document:
    run, at, entry = found.run, found.at, found.entry
    task, project = run.replica.name, job.project.name
    return {
        "logName": f"projects/{project}/logs/{task}",
        "resource": {
            "type": "ml_job",
            "labels": {"job_id": str(job.pk), "task_name": task, "project_id": project},
        },
        "timestamp": format_time(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)),
        "severity": "WARNING" if entry.missing else "INFO",
        "insertId": f"{run.pk}.{entry.end:014x}",
        "labels": {"trainyard/run": run.pk, "trainyard/attempt": str(run.attempt)},
        "textPayload": entry.missing or entry.data.decode("utf-8", "replace"),
    }


def _job(request: Request, body: RequestBody, wanted: EntryCondition) -> Job:
    """The one job that the filter names, in one of the projects that the request names."""
    projects, ids = _projects(body), wanted.jobs or frozenset()
    if len(ids) != 1 or not re.fullmatch(r"[0-9]{1,19}", next(iter(ids))):
        raise BadRequest("filter", 'The filter must name one job: resource.labels.job_id="ID".')
    (job_id,) = ids
    for name in projects:
        project = access.project_or_404(request.user, "see", name)
        rows = Job.objects.select_related("project").filter(project=project)
        if rows.filter(pk=int(job_id)).exists():
            return access.get_or_404(request.user, "see_log", rows, pk=int(job_id))
    raise Http404


def _projects(body: RequestBody) -> list[str]:
    named, old = body.get("resourceNames", []), body.get("projectIds", [])
    if not isinstance(named, list) or not isinstance(old, list):
        raise BadRequest("resourceNames", 'resourceNames must be a list such as ["projects/default"].')
    found = [
        re.fullmatch(r"projects/([^/:]{1,63})", str(name))
        for name in [*named, *(f"projects/{one}" for one in old)]
    ]
    names = [match[1] for match in found if match]
    if not names or len(names) < len(found) or len(names) > MAX_NAMED:
        raise BadRequest(
            "resourceNames", f'resourceNames must name 1 to {MAX_NAMED} projects: ["projects/default"].'
        )
    return names


def _runs(job: Job, wanted: EntryCondition) -> list[Run]:
    rows = Run.objects.filter(job=job, log_stored__gt=0).select_related("replica").defer("order")
    if wanted.tasks is not None:
        rows = rows.filter(replica__name__in=wanted.tasks)
    if wanted.low > 0:
        # The clocks of hosts are not ours: an hour is more than any that the checklist lets pass.
        ended = datetime.fromtimestamp(wanted.low / SECOND, UTC) - timedelta(hours=1)
        rows = rows.exclude(log_complete_at__lt=ended)
    found = list(rows.order_by("pk")[: MAX_RUNS + 1])
    if len(found) > MAX_RUNS:
        raise BadRequest(
            "filter", 'The job has too many runs. Name a replica: resource.labels.task_name="...".'
        )
    return found


def _page_size(body: RequestBody) -> int:
    given = body.get("pageSize", 0)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise BadRequest("pageSize", f"pageSize must be a whole number of at least 0, not {given!r}.")
    return min(given or PAGE_SIZE, MAX_PAGE_SIZE)


def _places(token: str, order: str) -> dict[str, Place]:
    try:
        return read_token(token, order)
    except BadToken as problem:
        raise BadRequest("pageToken", "The page token does not belong to this order.") from problem
