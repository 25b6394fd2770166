"""The stacks of a job: `POST /api/v1/jobs/N/stacks` takes them, and answers when all hosts have."""

from __future__ import annotations

from typing import Annotated, TypedDict

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.refusals import Refused
from console.api.description import Time, described, one_of
from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.shells import stack_groups
from jobs import stacks
from jobs.models import Job


class ThreadOfStack(TypedDict):
    """`count`: how many threads of the process stand there. `frames`: the innermost first. `name`: empty where the
    program has named none."""

    name: str
    state: Annotated[str, one_of(("active", "idle"))]
    count: int
    frames: list[str]


class StackOfJob(TypedDict):
    """Where some processes stand. `command`: of the first of them."""

    replicas: list[str]
    processes: int
    command: str
    threads: list[ThreadOfStack]


class UnseenReplicas(TypedDict):
    """`partly`: some of their processes are seen."""

    replicas: list[str]
    reason: str
    partly: bool


class StacksOfJob(TypedDict):
    """`stacks`: equal ones folded, those of the fewest replicas first. `replicas`: how many the job has. `text`: all of
    it, to be read."""

    takeTime: Time
    replicas: int
    stacks: list[StackOfJob]
    unseen: list[UnseenReplicas]
    text: str


class StacksView(TrainyardView):
    @described("Take the stacks of all replicas that run", StacksOfJob, needs="shell")
    def post(self, request: Request, job_id: str) -> Response:
        """By py-spy on their hosts, which takes seconds. One person takes those of one job at a time."""
        job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=int(job_id))
        user = person(request)
        try:
            taken = stacks.take(job, user.get_username(), str(user.pk), timezone.now())
        except Refused as refused:
            raise BadRequest("job", refused.message) from refused
        found = stack_groups.folded(job.pk, taken)
        document = stack_groups.document(found)
        return Response({**document, "takeTime": format_time(found.at), "text": stack_groups.as_text(found)})
