"""Jobs that a person has selected in a list, and what of them an act is possible for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from console.auth import access
from console.presenters.jobs import job_filters
from console.presenters.jobs.job_filters import Filters
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL

# At once: each is a transaction of its own, and the answer waits for all of them.
MOST = 200
CANCEL, DELETE, LABEL, CLONE = "cancel", "delete", "label", "clone"
# What each act needs. Who may cancel a job may label it; a copy is submitted to its project.
VERBS: Mapping[str, access.Verb] = {CANCEL: "cancel", DELETE: "delete", LABEL: "cancel", CLONE: "submit"}


@dataclass(frozen=True, slots=True)
class Selection:
    """`jobs`: those that the act is for. `left_out`: how many of the others for each reason. `unknown`: the ids that
    name no job that the person may see.
    """

    jobs: tuple[Job, ...]
    left_out: tuple[tuple[str, int], ...]
    unknown: tuple[int, ...]


def select(user: User, act: str, ids: Collection[int]) -> Selection:
    """Look at these jobs, with three queries whatever their number."""
    rows = access.visible(user, Job.objects.filter(pk__in=ids)).select_related("project").order_by("-pk")
    seen = list(rows)
    allowed = {job.pk for job in access.jobs_allowing(user, VERBS[act], seen)}
    chosen, why = [], Counter[str]()
    for job in seen:
        reason = "that you may not change" if job.pk not in allowed else _impossible(act, job)
        if reason:
            why[reason] += 1
        else:
            chosen.append(job)
    return Selection(tuple(chosen), tuple(why.items()), tuple(sorted(set(ids) - {job.pk for job in seen})))


def of_filters(user: User, filters: Filters) -> tuple[Sequence[int], bool]:
    """The first jobs of a whole list, whatever page is shown, and whether there are more than can be selected."""
    page = job_filters.page(user, filters.unpaged, MOST)
    return page.ids, page.follow


def _impossible(act: str, job: Job) -> str:
    if act == CANCEL and job.state in TERMINAL:
        return "over already"
    if act == DELETE and job.state not in TERMINAL:
        return "not over yet"
    if act == CLONE and job.project.archived_at is not None:
        return "of an archived project"
    return ""
