"""The page of one job, as frozen values: what stands around its tabs. Each tab has a presenter of its own.

The number of queries does not depend on the number of replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Sum
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_noop

from console.auth import access
from console.auth.access import Verb
from console.presenters.jobs.replicas import ReplicaLine
from jobs.models import Job, JobSecret, MaskedLog, Run

OVERVIEW, LOGS, METRICS, FILES = "job", "merged-log", "job-metrics", "job-outputs"
SHELLS, SPEC, EVENTS = "job-shells", "job-spec", "job-events"
# The name of each tab's address, its word, and what a person must be allowed to do to see it.
TABS: tuple[tuple[str, str, Verb], ...] = (
    (OVERVIEW, gettext_noop("Overview"), "see"),
    (LOGS, gettext_noop("Logs"), "see_log"),
    (METRICS, gettext_noop("Metrics"), "see"),
    (FILES, gettext_noop("Files"), "see_log"),
    (SHELLS, gettext_noop("Shells"), "watch_shell"),
    (SPEC, gettext_noop("Specification"), "see"),
    (EVENTS, gettext_noop("Events"), "see"),
)


@dataclass(frozen=True, slots=True)
class Tab:
    name: str
    word: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class JobPage:
    """What stands around a tab. `names`: of all replicas. `replica`: the chosen one, or empty.

    `restarted`: a replica of the job has more than one log.
    """

    id: int
    name: str
    tab: Tab
    tabs: tuple[Tab, ...]
    names: tuple[str, ...]
    replica: str
    restarted: bool

    @property
    def replica_count(self) -> int:
        return len(self.names)


def page(
    job: Job, user: User, current: str, replica: str = "", lines: Sequence[ReplicaLine] | None = None
) -> JobPage:
    """`lines`: all replicas, where the tab shows them. Else two queries ask what of them is needed."""
    if lines is None:
        names = tuple(job.replicas.order_by("pool", "index").values_list("name", flat=True))
    else:
        names = tuple(line.name for line in lines)
    chosen = replica if replica in names else ""
    only = names[0] if len(names) == 1 else ""
    tabs = tuple(_tabs(job, access.verbs(user, job), current, chosen, only))
    return JobPage(
        id=job.pk,
        name=job.display_name,
        tab=next(tab for tab in tabs if tab.current),
        tabs=tabs,
        names=names,
        replica=chosen,
        restarted=_restarted(job) if lines is None else any(len(line.every) > 1 for line in lines),
    )


def _tabs(job: Job, allowed: Collection[Verb], current: str, replica: str, only: str) -> list[Tab]:
    return [
        Tab(name, gettext(word), _address(name, job, replica, only), name == current)
        for name, word, verb in TABS
        if verb in allowed
    ]


def _address(tab: str, job: Job, replica: str, only: str) -> str:
    """The address of a tab. It keeps the chosen replica. A job of one replica has no merged log to look at."""
    if tab == LOGS and (replica or only):
        return reverse("log", args=[job.pk, replica or only])
    query = f"?{urlencode({'replica': replica})}" if replica else ""
    return f"{reverse(tab, args=[job.pk])}{query}"


def _restarted(job: Job) -> bool:
    # Counted, not looked for: for one replica with two runs PostgreSQL would walk through the runs of all jobs.
    found = Run.objects.filter(job=job, held=False).aggregate(
        runs=Count("pk"), replicas=Count("replica", distinct=True)
    )
    return bool(found["runs"] > found["replicas"])


@dataclass(frozen=True, slots=True)
class MaskedNote:
    """That secrets are masked in logs. `places`: how many were found in what has been looked through; None while that
    is nothing."""

    places: int | None


def masked_note(job: Job, replica: str = "") -> MaskedNote | None:
    """None for a job without secrets. With a replica, the places in the logs of its runs."""
    if not JobSecret.objects.filter(job=job).exists():
        return None
    logs = MaskedLog.objects.filter(run__job=job)
    if replica:
        logs = logs.filter(run__replica__name=replica)
    return MaskedNote(logs.aggregate(places=Sum("ranges"))["places"])
