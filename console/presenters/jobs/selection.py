"""Jobs that a person has selected in a list, and what of them an act is possible for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils.translation import ngettext

from console.auth import access
from console.presenters.jobs import job_filters
from console.presenters.jobs.job_filters import Filters
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL

# At once: each is a transaction of its own, and the answer waits for all of them.
MOST = 200
CANCEL, DELETE, LABEL, CLONE = "cancel", "delete", "label", "clone"
FORBIDDEN, OVER, NOT_OVER, ARCHIVED = "forbidden", "over", "not over", "archived"
# What each act needs. Who may cancel a job may label it; a copy is submitted to its project.
VERBS: Mapping[str, access.Verb] = {CANCEL: "cancel", DELETE: "delete", LABEL: "cancel", CLONE: "submit"}


@dataclass(frozen=True, slots=True)
class Selection:
    """`jobs`: those that the act is for. `left_out`: a sentence for each reason why others are left out."""

    jobs: tuple[Job, ...]
    left_out: tuple[str, ...]


def select(user: User, act: str, ids: Collection[int]) -> Selection:
    """Look at these jobs, with three queries whatever their number."""
    rows = access.visible(user, Job.objects.filter(pk__in=ids)).select_related("project").order_by("-pk")
    seen = list(rows)
    allowed = {job.pk for job in access.jobs_allowing(user, VERBS[act], seen)}
    chosen, why = [], Counter[str]()
    for job in seen:
        reason = FORBIDDEN if job.pk not in allowed else _impossible(act, job)
        if reason:
            why[reason] += 1
        else:
            chosen.append(job)
    return Selection(tuple(chosen), tuple(_left_out(reason, count) for reason, count in why.items()))


def of_filters(user: User, filters: Filters) -> tuple[Sequence[int], bool]:
    """The first jobs of a whole list, whatever page is shown, and whether there are more than can be selected."""
    page = job_filters.page(user, filters.unpaged, MOST)
    return page.ids, page.follow


def _impossible(act: str, job: Job) -> str:
    if act == CANCEL and job.state in TERMINAL:
        return OVER
    if act == DELETE and job.state not in TERMINAL:
        return NOT_OVER
    if act == CLONE and job.project.archived_at is not None:
        return ARCHIVED
    return ""


def _left_out(reason: str, count: int) -> str:
    sentences = {
        FORBIDDEN: ngettext(
            "Left out: {number} job that you may not change.",
            "Left out: {number} jobs that you may not change.",
            count,
        ),
        OVER: ngettext(
            "Left out: {number} job that is over already.",
            "Left out: {number} jobs that are over already.",
            count,
        ),
        NOT_OVER: ngettext(
            "Left out: {number} job that is not over yet.",
            "Left out: {number} jobs that are not over yet.",
            count,
        ),
        ARCHIVED: ngettext(
            "Left out: {number} job of an archived project.",
            "Left out: {number} jobs of archived projects.",
            count,
        ),
    }
    return sentences[reason].format(number=count)
