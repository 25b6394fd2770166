"""What goes first where a preparation waits for its files: a host gets one file at a time (agents/links/shipper.py),
and only a few hosts get files at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Max

from agents.infra.texts import said, said_of
from jobs.models import Job, Preparation, PreparationNeed
from jobs.rules.lifecycle.preparation_states import PreparationState

OPEN = (PreparationState.WANTED, PreparationState.WORKING)


@dataclass(frozen=True, slots=True)
class _Shipping:
    """Files that are on their way to a host. `job`: one of the project that asks, or None."""

    host: int
    title: str
    percent: int
    job: int | None


def turns_of(states: Iterable[tuple[int, str, int]], job: int) -> dict[int, str]:
    """By preparation, of which no file has come yet: what goes first, in words for people of the job's project.
    `states`: (preparation, phase, done). Makes no query if there is no such preparation, else up to three."""
    waiting = [pk for pk, phase, done in states if phase in OPEN and not done]
    known = _with_files(Preparation.objects.filter(pk__in=waiting)) if waiting else []
    if not known:
        return {}
    under_way = _under_way(job)
    hosts = {each.host for each in under_way.values()}
    found = {}
    for row in known:
        first = next((each for each in under_way.values() if each.host == row.host_id), None)
        if first is not None:
            found[row.pk] = _on_the_host(first)
        elif hosts:
            found[row.pk] = said_of(
                len(hosts),
                "Files go to a few hosts at a time: now to {number} other host.",
                "Files go to a few hosts at a time: now to {number} other hosts.",
            )
    return found


def _with_files(rows: Iterable[Preparation]) -> list[Preparation]:
    return [row for row in rows if row.what.get("blobs")]


def _under_way(job: int) -> dict[int, _Shipping]:
    working = Preparation.objects.filter(phase=PreparationState.WORKING, unit="bytes", done__gt=0)
    # What is loaded or unpacked later has another total than its files.
    rows = [
        row
        for row in _with_files(working.order_by("pk"))
        if row.total and row.done < row.total == sum(blob["size"] for blob in row.what["blobs"])
    ]
    project = Job.every.filter(pk=job).values("project")
    needs = PreparationNeed.objects.filter(
        preparation__in=[row.pk for row in rows], run__job__project__in=project
    )
    jobs = dict(needs.order_by().values_list("preparation").annotate(Max("run__job")))
    return {
        row.pk: _Shipping(row.host_id, row.title, int(100 * row.done / row.total), jobs.get(row.pk))
        for row in rows
        if row.total
    }


def _on_the_host(first: _Shipping) -> str:
    """What other projects bring is not told."""
    if first.job is None:
        return said("The host gets files of another project first ({percent} %).", percent=first.percent)
    words = {"what": first.title, "job": first.job, "percent": first.percent}
    return said("The host gets {what} of job {job} first ({percent} %).", **words)
