"""The live parts of the pages of jobs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from django.contrib.auth.models import User

from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters import live
from console.presenters.jobs import job_parts
from jobs.models import Job, Project


def _see_job(user: User, place: Place, verb: access.Verb = "see") -> Seen:
    job_id = place.number("job_id")
    job = access.get_or_404(user, verb, Job.objects.select_related("project"), pk=job_id)
    return Seen(user, access.verbs(user, job), (f"job:{job_id}",))


def _stamp_of_job(user: User, place: Place) -> str:
    return job_parts.job_stamp(place.number("job_id"))


def _job(user: User, place: Place, rights: Hashable) -> str:
    return job_parts.job_live(user, place.number("job_id"), dict(place.query))


def _see_list(user: User, place: Place) -> Seen:
    """Everybody may see a list. A person who is in no project yet sees jobs as soon as they are in one."""
    projects = access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True)
    return Seen(user, access.jobs_key(user), tuple(f"jobs:{name}" for name in projects))


def _stamp_of_list(user: User, place: Place) -> str:
    return live.list_stamp(user, dict(place.query))


def _list(user: User, place: Place, rights: Hashable) -> str:
    return live.list_live(user, dict(place.query))


def _see_queue(user: User, place: Place) -> Seen:
    """The same; who may move jobs sees buttons for it."""
    return replace(_see_list(user, place), rights=access.rights_key(user))


def _stamp_of_queue(user: User, place: Place) -> str:
    return live.queue_stamp(user, dict(place.query))


def _queue(user: User, place: Place, rights: Hashable) -> str:
    return live.queue_live(user, dict(place.query))


def _same_head(place: Place) -> Hashable:
    """The head does not depend on what else the address of a page asks for."""
    return place.number("job_id")


def _part(name: str, verb: access.Verb = "see", same_at: Callable[[Place], Hashable] | None = None) -> Part:
    """A part of a job's page (presenters/jobs/job_parts.py) for people who may do this to the job."""

    def see(user: User, place: Place) -> Seen:
        return _see_job(user, place, verb)

    def stamp(user: User, place: Place) -> str:
        return job_parts.part_stamp(name, place.number("job_id"))

    def render(user: User, place: Place, rights: Hashable) -> str:
        return job_parts.part_live(name, user, place.number("job_id"), dict(place.query))

    return Part(name, see, stamp, render, same_at) if same_at else Part(name, see, stamp, render)


# The socket of before version 0.4 sends all parts of the overview at once.
WHOLE_JOB = Part("job", _see_job, _stamp_of_job, _job)
JOB_HEAD = _part("job-head", same_at=_same_head)
JOB_OVERVIEW = (
    *(_part("job-overview-head", same_at=_same_head), _part("job-strip", same_at=_same_head)),
    _part("job-preparations", same_at=_same_head),
    *(_part("job-replicas"), _part("job-story")),
)
JOB_LOG = (_part("job-head", "see_log", _same_head),)
JOB_METRICS = (JOB_HEAD, _part("job-metrics"), _part("job-points"), _part("job-reports", same_at=_same_head))
JOB_SHELLS = (JOB_HEAD, _part("job-shells", "watch_shell"))
JOB_SPEC = (JOB_HEAD,)
JOB_EVENTS = (JOB_HEAD, _part("job-events"))
JOB_LIST = Part("jobs", _see_list, _stamp_of_list, _list)
QUEUE = Part("queue", _see_queue, _stamp_of_queue, _queue)
