"""A move in the queue that a person asks for: what it may be, and its effect in rows that the person may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.http import Http404

from agents.infra.refusals import Refused
from agents.infra.texts import said
from console.auth import access
from jobs.models import Job
from jobs.rules.scheduling.reorder import MOST_PINNED, NOT_PASSED, Move, To
from jobs.scheduling.what_if import Change, what_if

# Of those that start sooner, and of those that start later, so many of the first are named. The others are counted.
MOST_NAMED = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One job that a move concerns. A start is None where it is not known."""

    id: int
    name: str
    project: str
    owner: str
    place: int
    new_place: int
    start: datetime | None
    new_start: datetime | None


@dataclass(frozen=True, slots=True)
class Preview:
    """`sooner` and `later` have those of the first `MOST_NAMED` each that the person may see; `sooner_hidden` and
    `later_hidden` count all others.

    `project`: the name of the project within which the jobs are moved; empty for the whole queue.
    """

    stamp: str
    project: str
    moved: tuple[Row, ...]
    sooner: tuple[Row, ...]
    later: tuple[Row, ...]
    sooner_hidden: int
    later_hidden: int
    held: int


def may_move_all(user: User) -> bool:
    """Whether the person may move jobs in the whole queue."""
    return access.can(user, "configure", Job)


def wanted(user: User, ids: Sequence[int], to: To, before: int | None, within: bool) -> Move:
    """The move, if the person may do it. `within`: among the jobs of their project, also for those who may move jobs in
    the whole queue. Raises Http404, PermissionDenied or Refused."""
    if not 0 < len(ids) <= MOST_PINNED:
        raise Refused("jobs", said("Select 1 to {most} jobs that wait.", most=MOST_PINNED))
    asked = [*ids, *([before] if before is not None else [])]
    seen = {job.pk: job for job in access.visible(user, Job.objects.filter(pk__in=asked))}
    if not seen.keys() >= set(ids):
        raise Http404
    # A place of the queue may be that of a job which the person does not see: no page is missing then.
    if not seen.keys() >= set(asked):
        raise Refused("before", NOT_PASSED)
    jobs = [seen[pk] for pk in ids]
    allowed = access.jobs_allowing(user, "reorder", jobs)
    for job in jobs:
        if job not in allowed:
            access.require(user, "reorder", job)
    if not within and may_move_all(user):
        return Move(tuple(ids), to, before)
    projects = {job.project_id for job in jobs}
    if len(projects) > 1:
        raise Refused("jobs", said("Within a project, only its own jobs can be moved."))
    return Move(tuple(ids), to, before, projects.pop())


def preview(user: User, move: Move, now: datetime) -> Preview:
    found = what_if(move, now)
    named = found.sooner[:MOST_NAMED], found.later[:MOST_NAMED]
    jobs = _jobs(user, (*found.moved, *named[0], *named[1]))
    first = jobs[found.moved[0].job] if found.moved else None
    sooner, later = (_rows(jobs, changes) for changes in named)
    return Preview(
        found.stamp,
        first.project.name if first and move.project is not None else "",
        _rows(jobs, sorted(found.moved, key=lambda change: change.new_place)),
        sooner,
        later,
        len(found.sooner) - len(sooner),
        len(found.later) - len(later),
        found.held,
    )


def _jobs(user: User, changes: Iterable[Change]) -> Mapping[int, Job]:
    ids = [change.job for change in changes]
    rows = access.visible(user, Job.objects.filter(pk__in=ids).order_by()).select_related("project")
    return {job.pk: job for job in rows.only("display_name", "owner_name", "project__name")}


def _rows(jobs: Mapping[int, Job], changes: Iterable[Change]) -> tuple[Row, ...]:
    return tuple(
        Row(
            change.job,
            job.display_name,
            job.project.name,
            job.owner_name,
            change.place,
            change.new_place,
            change.start,
            change.new_start,
        )
        for change in changes
        if (job := jobs.get(change.job)) is not None
    )
