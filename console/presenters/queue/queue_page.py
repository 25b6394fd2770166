"""The queue: who waits, in which order, for what, since when, and when each job is expected to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from agents.infra.sentences import shown
from agents.infra.shared_answers import SharedAnswers
from console.auth import access
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.queue.expected_start import Expected, expected_start
from console.presenters.queue.moves import may_move_all
from jobs.models import ExpectedStart, Job, Project, QueuePin
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.scheduling.order import PRIORITIES
from jobs.rules.scheduling.resource_requests import decode_request
from jobs.rules.scheduling.views import cpu_text
from jobs.scheduling import queue_order, queue_snapshot

SIZE = 50
# The order of the whole queue is computed once for all who look at it.
KEPT = timedelta(seconds=2)
_order: SharedAnswers[str, Sequence[int]] = SharedAnswers(KEPT, 1)
_PRIORITY_WORDS = {number: word for word, number in PRIORITIES.items()}
_COLUMNS = (
    "id",
    "display_name",
    "owner_name",
    "project__name",
    "location_name",
    "resource_request",
    "gpu_count",
    "priority",
    "spot",
    "state",
    "outcome",
    "reason",
    "cancel_requested_at",
    "rests_until",
    "queued_at",
    "attempt",
    "earliest_start_at",
)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """`place`: in the whole queue, from 1. None: it is offered none: not before `rests_until`, or `reason` says why.

    `starts_by`: when it starts at the latest, where that is known. `expected`: when it would start as the queue is now.
    `moved_by`: who moved it by hand; `kept_by`: by whose move it keeps its place. `movable`: this person may move it.
    """

    id: int
    place: int | None
    url: str
    name: str
    owner: str
    project: str
    location: str
    wants: str
    gpus: int
    priority: str
    spot: bool
    attempt: int
    reason: str
    since: datetime
    rests_until: datetime | None
    starts_by: datetime | None
    expected: Expected | None
    moved_by: str
    kept_by: str
    movable: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """One page of the queue.

    `waiting` counts all jobs that wait, `seen` those that the person may see, `gpus` what these want. `first` and
    `next` are addresses on this page, or empty; `here` is the query of this page. `movable`: the person may move jobs,
    of some projects at least; `movable_everywhere`: in the whole queue.
    """

    rows: tuple[QueueRow, ...]
    waiting: int
    seen: int
    gpus: int
    projects: tuple[str, ...]
    project: str
    first: str
    next: str
    here: str
    movable: bool
    movable_everywhere: bool


def queue(user: User, query: Mapping[str, str], size: int = SIZE) -> Queue:
    """Return one page. The number of queries does not depend on the number of jobs."""
    order = _whole_order()
    projects = access.visible(user, Project.objects.order_by("name"))
    names = tuple(projects.values_list("name", flat=True))
    project = query.get("project", "")
    project = project if project in names else ""
    rows = access.visible(user, Job.objects.filter(state=JobState.QUEUED).order_by())
    rows = rows.filter(project__name=project) if project else rows
    wants = dict(rows.values_list("pk", "gpu_count"))
    placed = {pk: place for place, pk in enumerate(order, 1) if pk in wants}
    # Jobs that came since, were set aside, or are not served by their location are not in the order. They come last.
    ids = [*placed, *sorted(wants.keys() - placed.keys())]
    start = _following(ids, query.get("after", ""))
    page = ids[start : start + size]
    jobs = {job.pk: job for job in Job.objects.filter(pk__in=page).select_related("project").only(*_COLUMNS)}
    expected = ExpectedStart.objects.in_bulk(page)
    pins = QueuePin.objects.in_bulk(page)
    mine = {one.pk for one in access.projects_allowing(user, "reorder")}
    found = [
        _row(jobs[pk], placed.get(pk), expected.get(pk), pins.get(pk), jobs[pk].project_id in mine)
        for pk in page
        if pk in jobs
    ]
    more = start + size < len(ids)
    return Queue(
        rows=tuple(found),
        waiting=len(order),
        seen=len(ids),
        gpus=sum(wants.values()),
        projects=names,
        project=project,
        first=_address(project, "") if start else "",
        next=_address(project, str(page[-1])) if more else "",
        here=_query(project, str(ids[start - 1]) if start else ""),
        movable=bool(mine),
        movable_everywhere=may_move_all(user),
    )


def _whole_order() -> Sequence[int]:
    return _order.get("all", lambda: queue_order.read_order(timezone.now()).ids)


def forget_order() -> None:
    """The order was changed by this process: the next who looks sees it."""
    _order.clear()


def _following(ids: Sequence[int], after: str) -> int:
    """Where the page begins: behind this job. A job that waits no more is no place, so the queue is shown from its
    beginning."""
    job = cursor_number(after)
    return ids.index(job) + 1 if job in ids else 0


def _query(project: str, after: str) -> str:
    return urlencode({name: value for name, value in (("project", project), ("after", after)) if value})


def _address(project: str, after: str) -> str:
    return f"?{_query(project, after)}"


def place_of(place: int) -> int | None:
    """The job that stands there in the whole queue, as its page shows it."""
    order = _whole_order()
    return order[place - 1] if 0 < place <= len(order) else None


def _row(
    job: Job, place: int | None, expected: ExpectedStart | None, pin: QueuePin | None, mine: bool
) -> QueueRow:
    waits = queue_snapshot.is_waiting(job)
    return QueueRow(
        id=job.pk,
        place=place if waits else None,
        url=reverse("job", args=[job.pk]),
        name=job.display_name,
        owner=job.owner_name,
        project=job.project.name,
        location=job.location_name,
        wants=_wants(job.resource_request),
        gpus=job.gpu_count,
        priority=_PRIORITY_WORDS.get(job.priority, str(job.priority)),
        spot=job.spot,
        attempt=job.attempt,
        reason=shown(job.reason),
        since=job.queued_at,
        rests_until=job.rests_until,
        starts_by=job.earliest_start_at,
        expected=expected_start(job, expected),
        moved_by=pin.by if pin and pin.moved else "",
        kept_by=pin.by if pin and not pin.moved else "",
        movable=mine and waits and place is not None,
    )


def _wants(request: str) -> str:
    """Word what a job needs of hosts: `2 × 8 NVIDIA_L4`, `3 × 4 CPUs`."""
    if not request:
        return ""
    sizes = decode_request(request).sizes
    parts = (
        f"{count} × {each.gpus} {each.accelerator_type}"
        if each.gpus
        else f"{count} × {shown(cpu_text(each.cpus))}"
        for each, count in sizes
    )
    return shown(list_text(list(parts), 4))
