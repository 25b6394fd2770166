"""How many jobs the filters of a list match, on all its pages, and how many GPUs these have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Count, Sum

from agents.infra.shared_answers import SharedAnswers
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.job_filters import Filters, found
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL, JobState

# An index alone counts states and projects. With another filter, jobs are looked at one by one: so many of them.
MAX_COUNTED = 1_000
# A busy deployment changes all the time. The sums of many jobs are as old as this at most, unless the page changed.
KEPT = timedelta(seconds=5)
_ORDER = [state for state in JobState if state not in TERMINAL]
_recent: SharedAnswers[Hashable, Totals] = SharedAnswers(KEPT, 200)


@dataclass(frozen=True, slots=True)
class StateTotal:
    badge: Badge
    jobs: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Totals:
    """`more`: there are more than `jobs`, nobody counted how many. `states`: those of jobs that are not over yet."""

    jobs: int
    more: bool
    gpus: int
    states: tuple[StateTotal, ...]


def of_rows(rows: Iterable[tuple[str, int]]) -> Totals:
    """The totals of a list that is shown whole: the state and the GPUs of each job."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for state, gpus in rows:
        counts[state][0] += 1
        counts[state][1] += gpus
    return _totals([(state, jobs, gpus) for state, (jobs, gpus) in counts.items()])


def of_filters(user: User, filters: Filters, shown: Hashable) -> Totals:
    """The totals of a list that has pages. `shown`: what is on this page, so that the two never contradict."""
    key = access.jobs_key(user), filters.unpaged, shown
    return _recent.get(key, lambda: _count(user, filters.unpaged))


def _count(user: User, filters: Filters) -> Totals:
    rows = found(user, filters)
    few = bool(filters.text or filters.owner or filters.label)
    if few:
        some = list(rows.order_by("-id").values_list("pk", flat=True)[: MAX_COUNTED + 1])
        if len(some) > MAX_COUNTED:
            return Totals(MAX_COUNTED, True, 0, ())
        rows = Job.objects.filter(pk__in=some).order_by()
    counted = rows.values_list("state").annotate(Count("pk"), Sum("gpu_count"))
    return _totals([(state, jobs, gpus or 0) for state, jobs, gpus in counted])


def _totals(counted: Iterable[tuple[str, int, int]]) -> Totals:
    found = {state: (jobs, gpus) for state, jobs, gpus in counted}
    states = tuple(StateTotal(badges.JOB[state], *found[state]) for state in _ORDER if state in found)
    jobs = sum(jobs for jobs, _ in found.values())
    return Totals(jobs, False, sum(gpus for _, gpus in found.values()), states)
