"""The panel of a job's page that shows what its hosts prepare. Of many hosts it shows those that need a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop

from console.presenters.badges import JOB, Badge
from jobs.models import Job
from jobs.preparations import of_jobs
from jobs.preparations.of_jobs import HostPreparation
from jobs.rules.lifecycle.preparation_states import PreparationState

SHOWN = 8
BADGES: Mapping[str, Badge] = {
    PreparationState.WANTED: Badge("WANTED", gettext_noop("Waiting"), "wait", "hourglass"),
    PreparationState.WORKING: Badge("WORKING", gettext_noop("Preparing"), "busy", "ring"),
    PreparationState.READY: Badge("READY", gettext_noop("Ready"), "good", "tick"),
    PreparationState.FAILED: JOB["FAILED"],
}


@dataclass(frozen=True, slots=True)
class PreparationLine:
    """`percent`: None where nobody knows how much there is to do. `tail`: empty for who may not see logs. `turn`: what
    goes first, where its files wait for others, since `began_at`."""

    id: str
    host: str
    title: str
    badge: Badge
    percent: int | None
    done: int
    total: int | None
    unit: str
    left: timedelta | None
    message: str
    tail: str
    turn: str
    began_at: datetime | None


@dataclass(frozen=True, slots=True)
class Panel:
    """`more`: how many are not shown. `failed`: how many could not be prepared."""

    lines: tuple[PreparationLine, ...]
    ready: int
    failed: int
    total: int

    @property
    def more(self) -> int:
        return self.total - len(self.lines)


def panel(job: Job, may_see_output: bool, now: datetime) -> Panel:
    """Makes as many queries as `of_jobs.of_job`, however many hosts there are."""
    found = of_jobs.of_job(job, now)
    states = [each.progress.state for each in found]
    return Panel(
        lines=tuple(_line(each, may_see_output) for each in found[:SHOWN]),
        ready=states.count(PreparationState.READY),
        failed=states.count(PreparationState.FAILED),
        total=len(found),
    )


def _line(each: HostPreparation, may_see_output: bool) -> PreparationLine:
    progress = each.progress
    return PreparationLine(
        # It stays the same while the others change their places, so that what is open stays open.
        id=f"preparation-{each.id}",
        host=progress.host,
        title=progress.title,
        badge=BADGES[progress.state],
        percent=None if progress.share is None else round(100 * progress.share),
        done=each.done,
        total=each.total,
        unit=each.unit,
        left=None if progress.left_s is None else timedelta(seconds=max(1, round(progress.left_s))),
        message=each.message,
        tail=each.tail if may_see_output else "",
        turn=each.turn,
        began_at=each.began_at,
    )
