"""The replicas of a job as cells, or as rows of a table: state, load, restarts, and for how long each has been quiet.

All of them are read with a constant number of queries, and filtered here: a job has a thousand at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.job_query import CELLS, TABLE, JobQuery
from console.presenters.jobs.replicas import ReplicaLine
from console.presenters.metrics.utilization import CurrentUse, current_use
from jobs.rules.lifecycle.states import ReplicaState
from jobs.rules.spec.cluster_variables import TRAINER_POOLS

QUIETEST_FIRST, IDLEST_FIRST = "silent", "idle"
# Up to so many replicas, the table says more in the same room.
FEW = 4
# From so many on, cells are small and have no number.
MANY = 160
# Rows of a page of the table.
ROWS = 100
MARKS = {
    ReplicaState.FAILED: "×",
    ReplicaState.FINISHED: "✓",
    ReplicaState.STOPPING: "–",
    ReplicaState.STOPPED: "–",
    ReplicaState.WAITING: "…",
    ReplicaState.STARTING: "…",
    badges.UNREACHABLE.value: "?",
}


class Cell(NamedTuple):
    """One replica. `label`: its rank, or its pool and number if it does not train. `mark`: its state as a sign.

    `load`: of its GPUs in percent, or of its CPUs if it has none; None if it is not known. `odd`: it has printed
    nothing for much longer than the others.
    """

    line: ReplicaLine
    label: str
    mark: str
    load: int | None
    load_text: str
    printed_at: datetime | None
    quiet_since: datetime | None
    odd: bool
    selected: bool
    url: str
    words: str

    @property
    def tenth(self) -> str:
        """How full the cell is drawn."""
        return "" if self.load is None else str(min(round(self.load / 10), 10))


@dataclass(frozen=True, slots=True)
class Tally:
    """How many replicas are in one state, and where only these are shown."""

    badge: Badge
    count: int
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Cells:
    """What is shown of `total` replicas: `found` fit the filter, and `cells` are those of this page.

    `few` is a job that shows its table at once. `odd`: the unusually quiet replicas. `selected`: the chosen one.
    """

    cells: tuple[Cell, ...]
    found: int
    total: int
    few: bool
    table: bool
    dense: bool
    tally: tuple[Tally, ...]
    pools: tuple[str, ...]
    odd: tuple[Cell, ...]
    selected: Cell | None
    query: JobQuery
    earlier_url: str
    later_url: str

    @property
    def selected_rows(self) -> tuple[Cell, ...]:
        return (self.selected,) if self.selected else ()

    @property
    def kept(self) -> tuple[tuple[str, str], ...]:
        """What the filter's form does not ask about, and keeps."""
        given = (("replica", self.query.replica), ("state", self.query.state))
        return tuple(pair for pair in given if pair[1])


def cells(lines: Sequence[ReplicaLine], query: JobQuery) -> Cells:
    """Make the cells of these replicas, and filter and sort them as the address asks. Makes three queries."""
    every = _all(lines, query)
    found = _sorted([cell for cell in every if _fits(cell, query)], query.sort)
    few = len(every) <= FEW
    table = query.view == TABLE or (few and query.view != CELLS)
    start = min(int(query.start or 0), len(found)) if table else 0
    end = start + ROWS if table else len(found)
    earlier = {"start": str(start - ROWS) if start > ROWS else ""}
    return Cells(
        cells=tuple(found[start:end]),
        found=len(found),
        total=len(every),
        few=few,
        table=table,
        dense=len(every) > MANY,
        tally=_tally(lines, query),
        pools=tuple(dict.fromkeys(_pool(cell) for cell in every)),
        odd=tuple(cell for cell in every if cell.odd),
        selected=next((cell for cell in every if cell.selected), None),
        query=query,
        earlier_url=query.query_with(**earlier) if start else "",
        later_url=query.query_with(start=str(end)) if end < len(found) else "",
    )


def _all(lines: Sequence[ReplicaLine], query: JobQuery) -> list[Cell]:
    now = timezone.now()
    used = current_use(lines, now)
    others = query.query_with(replica="")
    base = f"?{others}&replica=" if others else "?replica="
    dense = len(lines) > MANY
    rank, made, texts = 0, [], _Texts.of_page(lines)
    for line, use in zip(lines, used, strict=True):
        pool, index = line.name.removeprefix("workerpool").split("-")
        trains = int(pool) in TRAINER_POOLS
        label = str(rank) if trains else f"{pool}-{index}"
        rank += trains
        made.append(_cell(line, use, label, line.name == query.replica, base, dense, texts))
    return made


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of all cells, in the language of the page."""

    on_host: str
    ranked: str
    states: Mapping[str, str]

    @classmethod
    def of_page(cls, lines: Iterable[ReplicaLine]) -> _Texts:
        states = {line.badge.value: line.badge for line in lines}
        words = {value: badge.word for value, badge in states.items()}
        return cls(_("on {host}"), _("{name}, rank {rank}"), words)


def _cell(
    line: ReplicaLine, use: CurrentUse, label: str, selected: bool, base: str, dense: bool, texts: _Texts
) -> Cell:
    load, of = (use.gpu_share, "GPU") if use.has_gpus else (use.cpu_share, "CPU")
    words = "" if load is None else f"{of} {load} %"
    # Of very many cells only those are sent again that look different: what is drawn is the load in tenths.
    drawn = "" if load is None else f"{of} ≈ {round(load, -1)} %"
    mark = MARKS.get(line.badge.value, "") + ("!" if use.odd else "") + ("↻" if line.restarts else "")
    return Cell(
        line=line,
        label=label,
        mark=mark,
        load=load,
        load_text=words,
        printed_at=use.printed_at,
        quiet_since=use.quiet_since,
        odd=use.odd,
        selected=selected,
        url=f"{base}{line.name}",
        words=_words(line, use, label, drawn if dense else words, texts),
    )


def _words(line: ReplicaLine, use: CurrentUse, label: str, load: str, texts: _Texts) -> str:
    parts = [texts.states[line.badge.value], load, texts.on_host.format(host=line.host) if line.host else ""]
    if line.restarts:
        restarts = ngettext("{number} restart", "{number} restarts", line.restarts)
        parts.append(restarts.format(number=line.restarts))
    if use.odd:
        parts.append(_("much quieter than the others"))
    name = texts.ranked.format(name=line.name, rank=label) if label.isdigit() else line.name
    return f"{name}: {', '.join(filter(None, parts))}"


def _fits(cell: Cell, query: JobQuery) -> bool:
    text = query.text.lower()
    return (
        (not query.state or cell.line.badge.value == query.state)
        and (not query.pool or _pool(cell) == query.pool)
        and (not text or text in cell.line.name or text in cell.line.host.lower() or text == cell.label)
    )


def _sorted(found: list[Cell], sort: str) -> list[Cell]:
    if sort == QUIETEST_FIRST:
        far = timezone.now()
        return sorted(found, key=lambda cell: (cell.quiet_since is None, cell.quiet_since or far))
    if sort == IDLEST_FIRST:
        return sorted(found, key=lambda cell: (cell.load is None, cell.load or 0))
    return found


def _tally(lines: Sequence[ReplicaLine], query: JobQuery) -> tuple[Tally, ...]:
    badges_of = {line.badge.value: line.badge for line in lines}
    counts = Counter(line.badge.value for line in lines)
    return tuple(
        Tally(badges_of[value], count, query.query_with(state=value, start=""), value == query.state)
        for value, count in counts.items()
    )


def _pool(cell: Cell) -> str:
    return cell.line.name.partition("-")[0]
