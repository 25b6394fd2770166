"""One act on many jobs: `POST /api/v1/jobs:batchCancel`, `:batchDelete`, `:batchLabel` and `:batchClone`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import uuid4

from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Call, Id, described_acts, form
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.jobs import selection
from console.presenters.jobs.job_filters import cursor_number
from jobs import bulk
from jobs.bulk import Outcome
from jobs.models import Job

NO_JOB = "There is no job with this id that you may see."
NOT_YOURS = "You may not do this to this job."
MAX_REQUEST = 100
Do = Callable[[Sequence[Job], User, RequestBody, datetime], Outcome]


class RefusedJob(TypedDict):
    job: Id
    message: str


class BatchAnswer(TypedDict):
    """`done`: the ids of the jobs; for copies, those of the new ones."""

    done: list[Id]
    refused: list[RefusedJob]


class BatchBody(TypedDict):
    jobs: Annotated[list[str | int], form(minItems=1, maxItems=selection.MOST)]


class LabelBody(BatchBody):
    """`labels`: what each of the jobs is given. `remove`: the keys of what is taken away."""

    labels: NotRequired[dict[str, str]]
    remove: NotRequired[list[str]]


class CloneBody(BatchBody):
    """`requestId`: sent twice, the same copies are answered."""

    requestId: NotRequired[Annotated[str, form(maxLength=MAX_REQUEST)]]


CALLS = {
    "batchCancel": Call("Cancel many jobs", needs="cancel", body=BatchBody),
    "batchDelete": Call("Delete many jobs", needs="delete", body=BatchBody),
    "batchLabel": Call("Label many jobs", needs="cancel", body=LabelBody),
    "batchClone": Call("Submit copies of many jobs", needs="submit", body=CloneBody),
}


class BatchView(TrainyardView):
    """Does it to each job that `jobs` names. The answer has the ids of those that it was done to (`done`; for copies,
    those of the new jobs), and the reason for each other one (`refused`).
    """

    @described_acts(BatchAnswer, CALLS)
    def post(self, request: Request, act: str) -> Response:
        kind, do, fields = ACTS[act]
        body, user = RequestBody(request, fields), person(request)
        ids = _ids(body.get("jobs"))
        rows = access.visible(user, Job.objects.filter(pk__in=ids)).select_related("project")
        seen = {job.pk: job for job in rows}
        allowed = {job.pk for job in access.jobs_allowing(user, selection.VERBS[kind], seen.values())}
        outcome = do([seen[pk] for pk in ids if pk in allowed], user, body, timezone.now())
        refused = [(pk, NOT_YOURS if pk in seen else NO_JOB) for pk in ids if pk not in allowed]
        refused += [(job.pk, why) for job, why in outcome.refused]
        told = [{"job": str(pk), "message": why} for pk, why in refused]
        return Response({"done": [str(job.pk) for job in outcome.done], "refused": told})


def _ids(value: Any) -> list[int]:
    """Ids as texts, which JSON of every language keeps exactly, or as numbers."""
    found = [cursor_number(str(each)) for each in value] if isinstance(value, list) else []
    ids = list(dict.fromkeys(pk for pk in found if pk is not None))
    if not ids or None in found or len(ids) > selection.MOST:
        raise BadRequest("jobs", f"jobs must be a list of 1 to {selection.MOST} ids of jobs.")
    return ids


def _cancel(jobs: Sequence[Job], user: User, body: RequestBody, now: datetime) -> Outcome:
    return bulk.cancel(jobs, user.username, now)


def _delete(jobs: Sequence[Job], user: User, body: RequestBody, now: datetime) -> Outcome:
    return bulk.delete(jobs, user.username, now)


def _label(jobs: Sequence[Job], user: User, body: RequestBody, now: datetime) -> Outcome:
    """`labels`: what each of the jobs is given. `remove`: the keys of what is taken away."""
    given, taken = body.get("labels", {}), body.get("remove", [])
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise BadRequest("labels", 'labels must be an object of texts, such as {"team": "nlp"}.')
    if not isinstance(taken, list) or not all(isinstance(key, str) for key in taken):
        raise BadRequest("remove", 'remove must be a list of keys, such as ["team"].')
    if not given and not taken:
        raise BadRequest("labels", "labels or remove must say what to change.")
    return bulk.label(jobs, given, taken, user.username, now)


def _clone(jobs: Sequence[Job], user: User, body: RequestBody, now: datetime) -> Outcome:
    """`requestId`: sent twice, the same copies are answered."""
    request = body.text("requestId", "", MAX_REQUEST) or f"batch-{uuid4()}"
    prioritized = [project.pk for project in access.projects_allowing(user, "prioritize")]
    return bulk.copy(jobs, user, request, now, prioritized)


ACTS: dict[str, tuple[str, Do, type]] = {
    "batchCancel": (selection.CANCEL, _cancel, BatchBody),
    "batchDelete": (selection.DELETE, _delete, BatchBody),
    "batchLabel": (selection.LABEL, _label, LabelBody),
    "batchClone": (selection.CLONE, _clone, CloneBody),
}
