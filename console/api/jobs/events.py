"""A job's history for scripts, oldest first: `GET /api/v1/jobs/<id>/events[?pageSize=&pageToken=&replica=&kind=]`.

`replica=job` returns only the events of the job itself. Every page that is not empty has a `nextPageToken`. A later
request with this token returns the events since then.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import resources
from console.api.description import Id, Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size, whole_number
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.jobs import timeline
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, HistoryKind

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000


class EventLine(TypedDict):
    """`subject`: a replica, or `job`. `hostTime`: by the clock of the host, which is `hostClockOffsetSeconds` ahead."""

    id: Id
    time: Time
    kind: str
    subject: str
    attempt: int | None
    cause: str
    actor: str
    run: NotRequired[str]
    hostTime: NotRequired[Time]
    hostClockOffsetSeconds: NotRequired[float]


FromTo = TypedDict("FromTo", {"from": str, "to": str})


class Event(EventLine, FromTo):
    """Something that happened, and `from` which state `to` which it led."""


class EventPage(TypedDict):
    events: list[Event]
    nextPageToken: NotRequired[str]


PAGED = paged(PAGE_SIZE, MAX_PAGE_SIZE)
ASKED = (
    PAGED[0],
    Query(
        "pageToken",
        "The `nextPageToken` of an earlier answer.",
        Annotated[str, form(pattern="^[0-9]{1,18}$")],
    ),
    Query("replica", "Only what happened to this replica; `job`: only to the job itself."),
    Query("kind", "Only what is of this kind.", Annotated[str, one_of(HistoryKind)]),
)


class EventsView(TrainyardView):
    @described("List the history of a job, the oldest first", EventPage, needs="see", query=ASKED)
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        query = request.query_params
        size = page_size(query, PAGE_SIZE, MAX_PAGE_SIZE)
        after = whole_number("pageToken", query.get("pageToken") or "0")
        kind = query.get("kind", "")
        if kind and kind not in HistoryKind.__members__.values():
            raise BadRequest("kind", f"kind must be one of {', '.join(HistoryKind)}.")
        of = query.get("replica", "")
        if of != JOB:
            of = resources.requested_replica(job, of)
        rows = timeline.select(job, of, kind)
        found = list(rows.filter(id__gt=after).order_by("id")[:size])
        answer: dict[str, Any] = {"events": [document(row) for row in found]}
        if found:
            answer["nextPageToken"] = str(found[-1].pk)
        return Response(answer)


def document(row: Transition) -> dict[str, Any]:
    about_the_job = row.subject in ABOUT_THE_JOB
    event: dict[str, Any] = {
        "id": str(row.pk),
        "time": format_time(row.at),
        "kind": row.kind,
        "subject": JOB if about_the_job else row.subject,
        "attempt": row.attempt,
        "from": row.from_state,
        "to": row.to_state,
        "cause": row.cause,
        "actor": row.actor,
    }
    if row.run:
        event["run"] = row.run
    if row.host_at is not None:
        event["hostTime"] = format_time(row.host_at)
    if row.host_offset_s is not None:
        event["hostClockOffsetSeconds"] = round(row.host_offset_s, 3)
    return event
