"""The list of jobs, filtered, sorted and paged in SQL. It does not load the specs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from agents.infra.sentences import shown
from agents.infra.texts import join
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs import job_filters, job_totals
from console.presenters.jobs.job_filters import NEWEST, Filters, Page
from console.presenters.jobs.job_head import error_text
from console.presenters.jobs.job_totals import Totals
from console.presenters.jobs.trial_links import TrialLink, trial_links
from console.presenters.sort_links import SortLink, next_order
from jobs.models import Job, JobLabel, Project, TuningJob
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.tuning.study import LABEL

SIZE = 50
COLUMNS = (
    "id",
    "display_name",
    "owner_name",
    "state",
    "reason",
    "flags",
    "error_message",
    "outcome",
    "replica_count",
    "gpu_count",
    "project__name",
    "attempt",
    "created_at",
    "started_at",
    "ended_at",
)
ORDERS = {
    NEWEST: gettext_noop("Newest first"),
    "created": gettext_noop("Oldest first"),
    "name": gettext_noop("Names from A to Z"),
    "-name": gettext_noop("Names from Z to A"),
    "-gpus": gettext_noop("Most GPUs first"),
    "gpus": gettext_noop("Fewest GPUs first"),
}
# The columns of the table that sort it, and the order that a first click asks for.
_SORTED = {"name": "name", "gpus": "-gpus", "created": NEWEST}


@dataclass(frozen=True, slots=True)
class Label:
    """`url`: the list with the jobs that have it too."""

    key: str
    value: str
    url: str

    @property
    def text(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    url: str
    name: str
    badge: Badge
    note: str
    owner: str
    project: str
    replicas: int
    gpus: int
    attempt: int
    labels: tuple[Label, ...]
    trial: TrialLink | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobList:
    """One page of the list. `first`, `previous` and `next` are addresses of other pages, or empty.

    `trials`: the address of the same list with the trials that it leaves out, or without those that it shows; empty
    where there is no study.
    """

    rows: tuple[JobRow, ...]
    filters: Filters
    trials: str
    totals: Totals
    projects: tuple[str, ...]
    sorts: Mapping[str, SortLink]
    orders: tuple[tuple[str, str], ...]
    first: str
    previous: str
    next: str
    shows_filters: bool = True


def job_list(user: User, query: Mapping[str, str]) -> JobList:
    return found(user, Filters.of(query), SIZE)


def found(user: User, filters: Filters, size: int) -> JobList:
    page = job_filters.page(user, filters, size)
    by_id = {job.pk: job for job in _rows(page)}
    jobs = [by_id[pk] for pk in page.ids if pk in by_id]
    labels = _labels(page.ids)
    trials = _trial_links(labels)
    here = reverse("jobs")
    return JobList(
        rows=tuple(_row(job, labels.get(job.pk, ()), trials.get(job.pk), filters) for job in jobs),
        filters=filters,
        trials=_trials(user, filters),
        totals=_totals(user, filters, page, [(job.pk, job.state, job.gpu_count) for job in jobs]),
        projects=_projects(user),
        sorts={name: _sort_link(filters, name, first) for name, first in _SORTED.items()},
        orders=tuple((order, gettext(word)) for order, word in ORDERS.items()),
        first=f"{here}?{filters.query()}" if page.precede else "",
        previous=f"{here}?{filters.query(ahead=page.ids[0])}" if page.precede and page.ids else "",
        next=f"{here}?{filters.query(after=page.ids[-1])}" if page.follow else "",
    )


def stamp(user: User, query: Mapping[str, str]) -> list[object]:
    """Return what changes whenever the page would change."""
    filters = Filters.of(query)
    page = job_filters.page(user, filters, SIZE)
    rows = sorted(_rows(page).values_list(*COLUMNS), reverse=True)
    states = {row[0]: (row[0], row[3], row[9]) for row in rows}
    totals = _totals(user, filters, page, [states[pk] for pk in page.ids if pk in states])
    labels = _labels(page.ids)
    return [page, rows, labels, _trial_links(labels), totals, _projects(user), _trials(user, filters)]


def _rows(page: Page):  # type: ignore[no-untyped-def]
    return Job.objects.filter(pk__in=page.ids).order_by().select_related("project").only(*COLUMNS)


def _totals(user: User, filters: Filters, page: Page, shown: Sequence[tuple[int, str, int]]) -> Totals:
    if not page.precede and not page.follow:
        return job_totals.of_rows((state, gpus) for _, state, gpus in shown)
    return job_totals.of_filters(user, filters, tuple(shown))


def _trials(user: User, filters: Filters) -> str:
    if not filters.without_trials and not filters.trials:
        return ""
    if not access.visible(user, TuningJob.objects.order_by()).exists():
        return ""
    asked = filters.query(trials="" if filters.trials else "1")
    return f"{reverse('jobs')}?{asked}".rstrip("?")


def _projects(user: User) -> tuple[str, ...]:
    return tuple(access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True))


def _labels(ids: Sequence[int]) -> Mapping[int, Sequence[tuple[str, str]]]:
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    rows = JobLabel.objects.filter(job__in=ids).order_by("job", "key")
    for job, key, value in rows.values_list("job", "key", "value"):
        found[job].append((key, value))
    return dict(found)


def _trial_links(labels: Mapping[int, Sequence[tuple[str, str]]]) -> dict[int, TrialLink]:
    return trial_links((job, key) for job, of_job in labels.items() for key, _value in of_job)


def _sort_link(filters: Filters, name: str, first: str) -> SortLink:
    aria, wanted = next_order(filters.sort, name, first)
    return SortLink(
        aria, f"{reverse('jobs')}?{filters.query(sort='' if wanted == NEWEST else wanted)}".rstrip("?")
    )


def _row(job: Job, labels: Sequence[tuple[str, str]], trial: TrialLink | None, filters: Filters) -> JobRow:
    # The reason of a wait does not matter once the job is over.
    reason = "" if job.state in TERMINAL else job.reason
    notes = [error_text(job), reason, *(flag.get("text", "") for flag in job.flags)]
    return JobRow(
        id=job.pk,
        url=reverse("job", args=[job.pk]),
        name=job.display_name,
        badge=badges.JOB[job.state],
        note=shown(join(" ", (note for note in notes if note))),
        owner=job.owner_name,
        project=job.project.name,
        replicas=job.replica_count,
        gpus=job.gpu_count,
        attempt=job.attempt,
        labels=tuple(_label(key, value, filters) for key, value in labels if trial is None or key != LABEL),
        trial=trial,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def _label(key: str, value: str, filters: Filters) -> Label:
    asked = f"{key}={value}" if value else key
    return Label(key, value, f"{reverse('jobs')}?{filters.query(label=asked)}")
