"""The list of studies, filtered and paged in SQL, the newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet
from django.urls import reverse

from agents.infra.sentences import shown
from console.auth import access
from console.presenters.badges import JOB, Badge
from console.presenters.jobs.job_filters import ACTIVE, NEWEST, Filters, cursor_number
from console.presenters.metrics.reported_metrics import number
from console.presenters.newest_first import Cut, cut
from console.presenters.studies.study_page import goals
from jobs.models import Project, Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.tuning.measurements import best_trial
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import FINISHED, RUNNING, Ending, TrialState
from jobs.tuning import snapshot

SIZE = 25


@dataclass(frozen=True, slots=True)
class StudyRow:
    """`ended` of `asked` trials. `best`: the best value so far of the first objective, or empty."""

    id: int
    name: str
    project: str
    owner: str
    badge: Badge
    note: str
    goal: str
    ended: int
    asked: int
    running: int
    best: str
    best_trial: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class StudyList:
    """One page of the list. `previous` and `next` are addresses of the pages beside it, or empty."""

    rows: tuple[StudyRow, ...]
    filters: Filters
    projects: tuple[str, ...]
    previous: str
    next: str
    shows_filters: bool = True


def study_list(user: User, query: Mapping[str, str]) -> StudyList:
    filters = filters_of(query)
    found = _page(user, filters)
    rows = found.rows
    counts = _counts(rows)
    finals = _finals(rows)
    here = reverse("studies")
    return StudyList(
        rows=tuple(_row(each, counts, finals.get(each.pk, {})) for each in rows),
        filters=filters,
        projects=_projects(user),
        previous=f"{here}?{filters.query(ahead=found.previous['ahead'])}" if found.previous else "",
        next=f"{here}?{filters.query(after=found.next['before'])}" if found.next else "",
    )


def stamp(user: User, query: Mapping[str, str]) -> list[object]:
    """What changes whenever the page would change."""
    found = _page(user, filters_of(query))
    rows = [(each.pk, each.state, each.updated_at, each.reason) for each in found.rows]
    return [rows, found.previous, found.next, sorted(_counts(found.rows).items()), _projects(user)]


def filters_of(query: Mapping[str, str]) -> Filters:
    """Those of the list of jobs, without the ones that this list does not have."""
    return replace(Filters.of(query), label="", sort=NEWEST)


def _page(user: User, filters: Filters) -> Cut[TuningJob]:
    edge = {"before": str(filters.after or ""), "ahead": str(filters.ahead or "")}
    return cut(studies(user, filters).select_related("project").defer("trial_spec"), edge, SIZE)


def studies(user: User, filters: Filters) -> QuerySet[TuningJob]:
    rows = access.visible(user, TuningJob.objects.order_by())
    if filters.project:
        rows = rows.filter(project__name=filters.project)
    if filters.state:
        rows = rows.filter(state__in=ACTIVE if filters.state == "active" else [filters.state])
    if filters.owner:
        rows = rows.filter(owner_name=filters.owner)
    if filters.text:
        rows = rows.filter(Q(display_name__icontains=filters.text) | Q(pk=cursor_number(filters.text)))
    return rows


def _counts(rows: Sequence[TuningJob]) -> Counter[tuple[int, str]]:
    """How many trials each study has in each state, without those that hosts failed under and that are tried again."""
    trials = Trial.objects.filter(tuning_job__in=[each.pk for each in rows]).exclude(ending=Ending.HOSTS)
    found = trials.order_by().values_list("tuning_job", "state").annotate(number=Count("pk"))
    return Counter({(pk, state): count for pk, state, count in found})


def _finals(rows: Sequence[TuningJob]) -> dict[int, dict[int, Mapping[str, float]]]:
    """The results of the trials of each study, by their numbers."""
    trials = Trial.objects.filter(tuning_job__in=[each.pk for each in rows], state=TrialState.SUCCEEDED)
    found: dict[int, dict[int, Mapping[str, float]]] = {}
    columns = ("tuning_job", "number", "final")
    for pk, trial, final in trials.exclude(final=None).order_by().values_list(*columns).iterator():
        measured = snapshot.read_measurement(final)
        if measured is not None:
            found.setdefault(pk, {})[trial] = measured.metrics
    return found


def _row(
    row: TuningJob, counts: Mapping[tuple[int, str], int], finals: Mapping[int, Mapping[str, float]]
) -> StudyRow:
    study: StudySpec = snapshot.study_of(row)
    best = best_trial(study, finals)
    over = row.state in TERMINAL
    return StudyRow(
        id=row.pk,
        name=row.display_name,
        project=row.project.name,
        owner=row.owner_name,
        badge=JOB[row.state],
        note=shown(row.error_message if over else row.reason),
        goal=goals(study),
        ended=sum(counts.get((row.pk, state), 0) for state in FINISHED),
        asked=row.max_trials,
        running=sum(counts.get((row.pk, state), 0) for state in RUNNING),
        best="" if best is None else number(finals[best][study.objectives[0].name]),
        best_trial=best,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _projects(user: User) -> tuple[str, ...]:
    return tuple(access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True))
