"""The lanes of the occupancy: of each host how many of its GPUs were held, of each GPU by which jobs; and when the host
was closed or did not answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents.models import Gpu, Host, HostEvent, HostStatus
from console.presenters.hosts.occupancy_window import Window
from jobs.models import Run

# The width of a lane. A bar that is narrower than one of it cannot be seen.
WIDTH = 1000
COLOURS = 6
SILENT, CLOSED = "silent", "closed"
_OPENS, _CLOSES = ("uncordoned", "back"), ("cordoned", "draining")
_STATUSES = tuple(HostStatus.values)


@dataclass(frozen=True, slots=True)
class Held:
    """What one run held on a host. `name`, `project` and `owner` are empty if the person may not see its job."""

    host: int
    uuids: tuple[str, ...]
    job: int
    name: str
    project: str
    owner: str
    since: datetime
    started: datetime | None
    until: datetime | None

    @property
    def url(self) -> str:
        return reverse("job", args=[self.job]) if self.name else ""


@dataclass(frozen=True, slots=True)
class Bar:
    x: int
    width: int
    colour: int
    url: str
    words: str
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class Shade:
    """A time in which a host was closed, or did not answer."""

    x: int
    width: int
    kind: str
    words: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Lane:
    """`path`: how much was held, of a lane of a host. `bars`: by which jobs, of a lane of a GPU."""

    name: str
    url: str
    words: str
    percent: int
    path: str
    bars: tuple[Bar, ...]
    shades: tuple[Shade, ...]


def held_on(
    rows: Iterable[Mapping[str, Any]], machines: Mapping[int, int], visible: frozenset[int]
) -> list[Held]:
    """`rows` of runs, as `COLUMNS` names their values. `machines`: the machine of each login; `visible`: the projects
    that the person sees."""
    return [_held(row, machines, visible) for row in rows]


COLUMNS = (
    "host",
    "gpu_uuids",
    "job",
    "job__display_name",
    "job__project",
    "job__project__name",
    "job__owner_name",
    "created_at",
    "started_at",
    "released_at",
)


def _held(row: Mapping[str, Any], machines: Mapping[int, int], visible: frozenset[int]) -> Held:
    host, uuids, job, name, project, named, owner, since, started, until = (row[each] for each in COLUMNS)
    seen = project in visible
    return Held(
        machines.get(host, host),
        tuple(uuids),
        job,
        str(name) if seen else "",
        str(named) if seen else "",
        str(owner) if seen else "",
        since,
        started,
        until,
    )


def host_lanes(
    hosts: Sequence[Host],
    gpus: Mapping[int, int],
    held: Iterable[Held],
    window: Window,
    urls: Mapping[int, str],
) -> tuple[Lane, ...]:
    """A lane for each host. `gpus`: how many each has."""
    of_host: defaultdict[int, list[Held]] = defaultdict(list)
    for each in held:
        of_host[each.host].append(each)
    shades = _shades(hosts, window)
    return tuple(
        _host_lane(host, gpus.get(host.pk, 0), of_host[host.pk], window, urls[host.pk], shades[host.pk])
        for host in hosts
    )


def _host_lane(
    host: Host, gpus: int, held: Sequence[Held], window: Window, url: str, shades: tuple[Shade, ...]
) -> Lane:
    share = sum(len(each.uuids) * window.share(each.since, each.until) for each in held) / max(gpus, 1)
    percent = min(round(100 * share), 100)
    runs = ngettext("{number} run", "{number} runs", len(held)).format(number=len(held))
    words = _("{percent} % of {gpus} GPUs held, {runs}").format(percent=percent, gpus=gpus, runs=runs)
    return Lane(host.name, url, words, percent, _path(held, gpus, window), (), shades)


def _path(held: Sequence[Held], gpus: int, window: Window) -> str:
    """An area of steps: the mean number of held GPUs in each, as SVG path data, 10 high."""
    count = window.steps
    steps = [0.0] * count
    for each in held:
        first, last = (
            window.place(at) * count
            for at in (each.since, min(each.until or window.known_until, window.known_until))
        )
        for step in range(int(first), min(int(last) + 1, count)):
            steps[step] += len(each.uuids) * max(min(last, step + 1) - max(first, step), 0.0)
    return area([amount / max(gpus, 1) for amount in steps])


def area(steps: Sequence[float]) -> str:
    """The path of an area whose height in each step is such a share of a lane's; empty if all are 0."""
    parts, before = ["M0 10"], 0
    for step, share in enumerate(steps):
        height = min(round(10 * share), 10)
        if height != before:
            x = step * WIDTH // len(steps)
            parts.append(f"H{x}V{10 - height}")
            before = height
    return "".join([*parts, f"H{WIDTH}V10Z"]) if len(parts) > 1 else ""


def gpu_lanes(host: Host, gpus: Sequence[Gpu], held: Iterable[Held], window: Window) -> tuple[Lane, ...]:
    """A lane for each GPU of one host."""
    of_gpu: defaultdict[str, list[Held]] = defaultdict(list)
    for each in sorted(held, key=lambda each: each.since):
        for uuid in each.uuids:
            of_gpu[uuid].append(each)
    shades = _shades([host], window)[host.pk]
    return tuple(_gpu_lane(gpu, of_gpu[gpu.uuid], window, shades) for gpu in gpus)


def _gpu_lane(gpu: Gpu, held: Sequence[Held], window: Window, shades: tuple[Shade, ...]) -> Lane:
    percent = min(round(100 * sum(window.share(each.since, each.until) for each in held)), 100)
    words = _("{percent} % held").format(percent=percent)
    return Lane(f"GPU {gpu.index}", "", words, percent, "", tuple(_bars(held, window)), shades)


def _bars(held: Sequence[Held], window: Window) -> Iterable[Bar]:
    """Bars from left to right. Short ones that cannot be told apart are one bar without a link."""
    waiting: Bar | None = None
    several = 0
    for each in held:
        bar = _bar(each, window)
        if waiting is not None and bar.x < waiting.x + waiting.width and bar.width <= 1:
            several += 1
            words = _("{number} short runs").format(number=several)
            width = max(bar.x + bar.width - waiting.x, waiting.width)
            waiting = Bar(waiting.x, width, 0, "", words)
            continue
        if waiting is not None:
            yield waiting
        waiting, several = bar, 1
    if waiting is not None:
        yield waiting


def _bar(each: Held, window: Window) -> Bar:
    x = round(window.place(each.since) * WIDTH)
    ends = round(window.place(min(each.until or window.known_until, window.known_until)) * WIDTH)
    who = f"{each.name} · {each.owner}" if each.name else _("a job of a project that is not yours")
    return Bar(
        min(x, WIDTH - 1),
        max(ends - x, 1),
        1 + each.job % (COLOURS - 1),
        each.url,
        f"{who} · {_moments(each.since, each.until)}",
        each.started is None and each.until is None,
    )


def _moments(since: datetime, until: datetime | None) -> str:
    ends = f"{until:%Y-%m-%d %H:%M} UTC" if until else _("now")
    return f"{since:%Y-%m-%d %H:%M} – {ends}"


def _shades(hosts: Sequence[Host], window: Window) -> Mapping[int, tuple[Shade, ...]]:
    """When each host was closed or did not answer, from its history and from what it is now."""
    rows = HostEvent.objects.filter(
        host__in=hosts, at__gte=window.start, kind__in=(*_STATUSES, *_OPENS, *_CLOSES)
    ).order_by("at", "pk")
    events: defaultdict[int, list[tuple[datetime, str]]] = defaultdict(list)
    for host, at, kind in rows.values_list("host", "at", "kind"):
        events[host].append((at, kind))
    return {host.pk: tuple(_shades_of(host, events[host.pk], window)) for host in hosts}


def _shades_of(host: Host, events: Sequence[tuple[datetime, str]], window: Window) -> Iterable[Shade]:
    maintenance = getattr(host, "maintenance", None)
    statuses = [(at, kind != HostStatus.UP) for at, kind in events if kind in _STATUSES]
    closings = [(at, kind in _CLOSES) for at, kind in events if kind in (*_OPENS, *_CLOSES)]
    is_silent = (host.status != HostStatus.UP, host.status_since)
    is_closed = (bool(maintenance and maintenance.cordoned), maintenance.cordoned_at if maintenance else None)
    for kind, words, changes, now in (
        (CLOSED, _("closed to new jobs"), closings, is_closed),
        (SILENT, _("not up"), statuses, is_silent),
    ):
        is_so, changed_at = now
        for since, until in _times(changes, is_so, changed_at, window):
            x = round(window.place(since) * WIDTH)
            ends = round(window.place(until or window.known_until) * WIDTH)
            if ends > x:
                yield Shade(x, ends - x, kind, f"{words} · {_moments(since, until)}", since, until)


def _times(
    changes: Sequence[tuple[datetime, bool]], now: bool, since: datetime | None, window: Window
) -> Iterable[tuple[datetime, datetime | None]]:
    """The times in which something was true. What was before the first change is its contrary; without any change it is
    as it is now."""
    if not changes:
        if now and (since is None or since < window.known_until):
            yield max(since or window.start, window.start), None
        return
    began = window.start if not changes[0][1] else None
    for at, is_true in changes:
        if is_true and began is None:
            began = at
        elif not is_true and began is not None:
            yield began, at
            began = None
    if began is not None:
        yield began, None


def runs_of(
    machines: Mapping[int, int], hosts: Iterable[int], window: Window, project: int | None
) -> list[dict[str, Any]]:
    """The runs that held something there in this time: those that still do, and those that gave it back since."""
    ids = [*hosts, *machines]
    runs = Run.objects.filter(host__in=ids, created_at__lt=window.end).order_by()
    if project is not None:
        runs = runs.filter(job__project=project)
    found = [*runs.filter(released_at=None).values(*COLUMNS)]
    return [*found, *runs.filter(released_at__gt=window.start).values(*COLUMNS)]
