"""Whose the things are that a host keeps: which projects have brought each, and which of their jobs still need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db.models import Count, Max, Q

from agents.hosts import kept
from agents.models import Host
from jobs.models import Preparation, PreparationNeed
from jobs.preparations import brought
from jobs.preparations.images import IMAGE
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.lifecycle.states import TERMINAL

Name = tuple[str, str]
# The preparations of a host that were used last. What nobody has used for so long is not there any more.
MOST = 2000
_COLUMNS = ("kind", "key", "what", "result", "title", "phase")
_OF_CACHE = {brought.TREE: kept.TREES, brought.ENVIRONMENT: kept.ENVIRONMENTS}


@dataclass(frozen=True, slots=True)
class Use:
    """One project needs, or has needed, something. `job`: its newest one; `live`: how many runs of jobs that go on. A
    shipped file is needed until what is made of it is ready. `archive`: the digest of the file that it was made of."""

    project: int
    job: int
    live: int
    title: str
    archive: str = ""


def uses_of(host: Host, names: Iterable[Name]) -> dict[Name, list[Use]]:
    """By what the host calls it. Makes two queries."""
    wanted = set(names)
    rows = Preparation.objects.filter(host=host).order_by("-used_at").only(*_COLUMNS)[:MOST]
    found = {row.pk: (row, [name for name in _names(row) if name in wanted]) for row in rows}
    uses: dict[Name, list[Use]] = {}
    for pk, project, job, live in _needs([pk for pk, (_, of_row) in found.items() if of_row]):
        row, of_row = found[pk]
        is_made = row.phase == PreparationState.READY
        for name in of_row:
            of_name = 0 if is_made and name[0] == kept.BLOBS else live
            uses.setdefault(name, []).append(
                Use(project, job, of_name, row.title, str(row.what.get("blob", "")))
            )
    return uses


def _needs(preparations: list[int]) -> Iterable[tuple[int, int, int, int]]:
    """(preparation, project, newest job, runs of jobs that go on) of each project."""
    needs = PreparationNeed.objects.filter(preparation__in=preparations).order_by()
    by_project = needs.values("preparation", "run__job__project")
    goes_on = Count("pk", filter=~Q(run__job__state__in=TERMINAL))
    counted = by_project.annotate(job=Max("run__job"), live=goes_on)
    return counted.values_list("preparation", "run__job__project", "job", "live")


def _names(row: Preparation) -> Iterator[Name]:
    if row.kind in _OF_CACHE:
        yield _OF_CACHE[row.kind], row.key
    elif row.kind == IMAGE and row.what.get("engine") in kept.ENGINES and row.what.get("archive"):
        yield str(row.what["engine"]), str(row.what["archive"])
    elif row.kind == IMAGE and row.result.get("id"):
        engine = str(row.what.get("engine", ""))
        yield engine if engine in kept.ENGINES else kept.IMAGES, str(row.result["id"])
    for blob in row.what.get("blobs", ()):
        yield kept.BLOBS, str(blob["sha256"])
