"""The queue: who waits, in which order, for what, and when each job is expected to start."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.jobs.expected_start import expected_document
from console.api.query import page_size
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.queue import queue_page
from console.presenters.queue.queue_page import QueueRow

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
KNOWN = ("pageSize", "pageToken", "project")


class QueueView(TrainyardView):
    """`GET /api/v1/queue[?project=&pageSize=&pageToken=]`."""

    def get(self, request: Request) -> Response:
        query = request.query_params.dict()
        for name in query:
            if name not in KNOWN:
                raise BadRequest(name, f"There is no parameter {name!r}. Known are {', '.join(KNOWN)}.")
        token = query.get("pageToken", "")
        if token and cursor_number(token) is None:
            raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.")
        size = page_size(query, PAGE_SIZE, MAX_PAGE_SIZE)
        asked = {"project": query.get("project", ""), "after": token}
        found = queue_page.queue(person(request), asked, size)
        if asked["project"] != found.project:
            raise BadRequest("project", "project must be the name of one of your projects.")
        more = {"nextPageToken": str(found.rows[-1].id)} if found.next and found.rows else {}
        sums = {"waiting": found.waiting, "seen": found.seen, "gpus": found.gpus}
        return Response({"jobs": [_job(row) for row in found.rows], "totals": sums, **more})


def _job(row: QueueRow) -> dict[str, Any]:
    times = {"restsUntil": row.rests_until, "earliestStartTime": row.starts_by}
    return {
        "id": str(row.id),
        **({"place": row.place} if row.place else {}),
        "displayName": row.name,
        "project": row.project,
        "owner": row.owner,
        "location": row.location,
        "wants": row.wants,
        "gpus": row.gpus,
        "priority": row.priority,
        "spot": row.spot,
        "attempt": row.attempt,
        "reason": row.reason,
        "queueTime": format_time(row.since),
        **{name: format_time(when) for name, when in times.items() if when},
        **expected_document(row.expected),
    }
