"""The queue: who waits, in which order, for what, and when each job is expected to start."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Id, Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.jobs.expected_start import ExpectedStart, expected_document
from console.api.query import page_size
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.queue import moves, queue_page
from console.presenters.queue.moves import Preview, Row
from console.presenters.queue.queue_page import QueueRow
from jobs.rules.scheduling.reorder import Move, To
from jobs.scheduling import reorder

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
KNOWN = ("pageSize", "pageToken", "project")


class WaitingJob(TypedDict):
    """`place`: in the whole queue; none where it is offered none: not before `restsUntil`, or `reason` says why."""

    id: Id
    place: NotRequired[int]
    displayName: str
    project: str
    owner: str
    location: str
    wants: str
    gpus: int
    priority: str
    spot: bool
    attempt: int
    reason: str
    queueTime: Time
    restsUntil: NotRequired[Time]
    earliestStartTime: NotRequired[Time]
    expectedStart: NotRequired[ExpectedStart]
    movedBy: NotRequired[str]
    keptBy: NotRequired[str]


class QueueTotals(TypedDict):
    """`seen`: of the waiting jobs, those that you may see."""

    waiting: int
    seen: int
    gpus: int


class QueuePage(TypedDict):
    jobs: list[WaitingJob]
    totals: QueueTotals
    nextPageToken: NotRequired[str]


class MovedJob(TypedDict):
    id: Id
    displayName: str
    project: str
    owner: str
    place: int | None
    newPlace: int | None
    start: NotRequired[Time]
    newStart: NotRequired[Time]


class HiddenMoves(TypedDict):
    sooner: int
    later: int


class MovePreview(TypedDict):
    """`notShown`: how many others start sooner and later. `stamp`: of the queue that this was seen in."""

    stamp: str
    withinProject: str | None
    to: str
    moved: list[MovedJob]
    sooner: list[MovedJob]
    later: list[MovedJob]
    notShown: HiddenMoves
    held: int


class MoveBody(TypedDict):
    """`before`: an id, where `to` is `before`. `withinProject`: for admins of the deployment."""

    jobs: Annotated[list[str | int], form(minItems=1)]
    to: Annotated[str, one_of(To)]
    before: NotRequired[str | int]
    withinProject: NotRequired[bool]


class ReorderBody(MoveBody):
    """`stamp`: that of a preview. It is refused with 409 if the queue has changed since."""

    stamp: NotRequired[Annotated[str, form(maxLength=100)]]


ASKED = (Query("project", "Only the jobs of this project."), *paged(PAGE_SIZE, MAX_PAGE_SIZE))


class QueueView(TrainyardView):
    """`GET /api/v1/queue[?project=&pageSize=&pageToken=]`."""

    @described(
        "List the jobs that wait, in the order in which they are offered a place", QueuePage, query=ASKED
    )
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


class PreviewView(TrainyardView):
    """`POST /api/v1/queue:preview`: what a move would change. It moves nothing."""

    @described("Show what a move in the queue would change", MovePreview, needs="reorder", body=MoveBody)
    def post(self, request: Request) -> Response:
        user = person(request)
        move = _move(RequestBody(request, MoveBody), user)
        return Response(_preview(moves.preview(user, move, timezone.now()), move))


class ReorderView(TrainyardView):
    """`POST /api/v1/queue:reorder`: move jobs. `stamp` is that of the preview; without it, the queue is moved as it is
    now. A stamp of a queue that has changed meanwhile is refused with 409."""

    @described("Move jobs in the queue", MovePreview, needs="reorder", body=ReorderBody)
    def post(self, request: Request) -> Response:
        user, now = person(request), timezone.now()
        body = RequestBody(request, ReorderBody)
        move = _move(body, user)
        seen = moves.preview(user, move, now)
        reorder.move(move, body.text("stamp", seen.stamp, 100), user.username, now)
        queue_page.forget_order()
        return Response(_preview(seen, move))


def _move(body: RequestBody, user: User) -> Move:
    to = body.text("to")
    if to not in tuple(To):
        raise BadRequest("to", f"to must be {', '.join(list(To)[:-1])} or {To.AUTOMATIC}.")
    ids = [_id(each) for each in jobs] if isinstance(jobs := body.get("jobs"), list) else []
    if not ids or None in ids:
        raise BadRequest("jobs", "jobs must be a list of ids of jobs that wait.")
    before = _id(body.get("before")) if "before" in body else None
    if (to == To.BEFORE) != (before is not None):
        raise BadRequest("before", f"before must be the id of a job where to is {To.BEFORE}, and only there.")
    within = body.boolean("withinProject")
    return moves.wanted(user, [pk for pk in dict.fromkeys(ids) if pk is not None], To(to), before, within)


def _id(value: Any) -> int | None:
    """Ids as texts, which JSON of every language keeps exactly, or as numbers."""
    return None if isinstance(value, bool) else cursor_number(str(value))


def _preview(found: Preview, move: Move) -> dict[str, Any]:
    return {
        "stamp": found.stamp,
        "withinProject": found.project or None,
        "to": move.to,
        "moved": [_change(row) for row in found.moved],
        "sooner": [_change(row) for row in found.sooner],
        "later": [_change(row) for row in found.later],
        "notShown": {"sooner": found.sooner_hidden, "later": found.later_hidden},
        "held": found.held,
    }


def _change(row: Row) -> dict[str, Any]:
    starts = {"start": row.start, "newStart": row.new_start}
    return {
        "id": str(row.id),
        "displayName": row.name,
        "project": row.project,
        "owner": row.owner,
        "place": row.place,
        "newPlace": row.new_place,
        **{name: format_time(at) for name, at in starts.items() if at},
    }


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
        **{name: by for name, by in (("movedBy", row.moved_by), ("keptBy", row.kept_by)) if by},
    }
