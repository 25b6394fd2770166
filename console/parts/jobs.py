"""The live parts of the pages of jobs."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from console import presenters
from console.auth import access
from console.parts.part import Part, Place, Seen
from jobs.models import Job, Project


def _see_job(user: User, place: Place) -> Seen:
    job_id = place.number("job_id")
    job = access.get_or_404(user, "see", Job.objects.select_related("project"), pk=job_id)
    return Seen(user, access.verbs(user, job), (f"job:{job_id}",))


def _stamp_of_job(user: User, place: Place) -> str:
    return presenters.job_stamp(place.number("job_id"))


def _job(user: User, place: Place, rights: Hashable) -> str:
    return presenters.job_live(user, place.number("job_id"), dict(place.query))


def _see_list(user: User, place: Place) -> Seen:
    """Everybody may see a list. A person who is in no project yet sees jobs as soon as they are in one."""
    projects = access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True)
    return Seen(user, access.jobs_key(user), tuple(f"jobs:{name}" for name in projects))


def _stamp_of_list(user: User, place: Place) -> str:
    return presenters.list_stamp(user, dict(place.query))


def _list(user: User, place: Place, rights: Hashable) -> str:
    return presenters.list_live(user, dict(place.query))


def _stamp_of_queue(user: User, place: Place) -> str:
    return presenters.queue_stamp(user, dict(place.query))


def _queue(user: User, place: Place, rights: Hashable) -> str:
    return presenters.queue_live(user, dict(place.query))


def _stamp_of_history(user: User, place: Place) -> str:
    return presenters.history_stamp(place.number("job_id"))


def _history(user: User, place: Place, rights: Hashable) -> str:
    return presenters.history_live(user, place.number("job_id"), dict(place.query))


HISTORY = Part("job-history", _see_job, _stamp_of_history, _history)
JOB = Part("job", _see_job, _stamp_of_job, _job)
JOB_LIST = Part("jobs", _see_list, _stamp_of_list, _list)
QUEUE = Part("queue", _see_list, _stamp_of_queue, _queue)
