"""The metrics of a job as its page shows them: charts drawn on the server, without script or style, with tables.

static/charts/ draws the same lines again, with a cursor and zoom, where scripts run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from console.presenters import badges, sizes
from console.presenters.jobs.event_groups import WORDS
from console.presenters.jobs.job_query import JobQuery
from console.presenters.metrics.charts import path
from console.presenters.metrics.metric_lines import SPANS, Span, Unit, Value
from console.presenters.metrics.metric_marks import Mark
from console.presenters.metrics.metrics import MOST_LINES, Asked, Chart, metrics
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL

SPAN_WORDS: Mapping[str, str] = {
    "hour": gettext_noop("last hour"),
    "day": gettext_noop("last day"),
    "all": gettext_noop("all of it"),
}
BANDS: Mapping[str, str] = {
    "": gettext_noop("as suits their number"),
    "0": gettext_noop("over each other"),
    "1": gettext_noop("smallest, middle and largest"),
}
# Points of a line that is drawn on the server: it is as wide as a phone, or nobody moves a cursor over it.
DRAWN = 80
# So many of the last steps are pushed to a page. One that has missed more asks for all.
NEWEST = 8


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """`path`: SVG path data. The other values are in words, of the shown time."""

    name: str
    path: str
    last: str
    least: str
    mean: str
    most: str


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """`words` say the same as the lines to people who do not see them. `top`: what the highest point stands for."""

    name: str
    title: str
    of: str
    top: str
    words: str
    lines: tuple[DrawnLine, ...]


@dataclass(frozen=True, slots=True)
class MarkLine:
    """What happened, as a line of a list."""

    at: datetime
    word: str
    icon: str
    subject: str
    state: str
    text: str
    more: int


@dataclass(frozen=True, slots=True)
class View:
    """What the address of the page asks for. A value that makes no sense counts as not given."""

    replicas: tuple[str, ...] = ()
    bands: str = ""
    span: str = "hour"
    start: str = ""
    end: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str], known: Sequence[str]) -> View:
        named = query.getlist("replicas") if isinstance(query, QueryDict) else [query.get("replicas", "")]
        chosen = {name for text in named for name in text.split(",") if name}
        # A tab keeps the replica that was chosen in another one.
        chosen = chosen or {JobQuery.from_query(query).replica}
        replicas = tuple(name for name in known if name in chosen)
        bands, span = query.get("bands", ""), query.get("span", "hour")
        if bands == "0" and (len(replicas) or len(known)) > MOST_LINES:
            bands = ""
        start, end = (query.get(name, "") for name in ("from", "to"))
        if not (_time(start) and _time(end) and _time(start) < _time(end)):  # type: ignore[operator]
            start = end = ""
        return cls(replicas, bands if bands in BANDS else "", span if span in SPANS else "hour", start, end)

    @property
    def asked(self) -> Asked:
        bands = None if self.bands == "" else self.bands == "1"
        return Asked(_time(self.start), _time(self.end), 0, self.replicas, bands, self.span)

    def query(self, *more: tuple[str, str], **changes: str) -> str:
        """The query of an address of this view: of the page (with `more`), and of the REST API alike."""
        asked = replace(self, **changes)  # type: ignore[arg-type]
        pairs = {
            "replicas": ",".join(asked.replicas),
            "bands": asked.bands,
            "span": asked.span if asked.span != "hour" else "",
            "from": asked.start,
            "to": asked.end,
            **dict(more),
        }
        return urlencode({name: value for name, value in pairs.items() if value}, safe=",:")

    @property
    def beside_span(self) -> tuple[tuple[str, str], ...]:
        """What the table of replicas keeps of it."""
        pairs = {"replicas": ",".join(self.replicas), "bands": self.bands, "from": self.start, "to": self.end}
        return tuple((name, value) for name, value in pairs.items() if value)


@dataclass(frozen=True, slots=True)
class MetricsPanel:
    view: View
    base: str
    url: str
    csv: str
    live: bool
    names: tuple[str, ...]
    bands: bool
    thinned: bool
    step: timedelta
    start: datetime
    end: datetime
    spans: tuple[tuple[str, str, str], ...]
    ways: tuple[tuple[str, str], ...]
    charts: tuple[DrawnChart, ...]
    marks: tuple[MarkLine, ...]
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def zoomed(self) -> bool:
        return bool(self.view.start)


def metrics_panel(job: Job, query: Mapping[str, str], now: datetime) -> MetricsPanel:
    """Return the charts. Makes eight queries at most, for any number of replicas."""
    known = tuple(job.replicas.order_by("pool", "index").values_list("name", flat=True))
    view = View.of(query, known)
    found = metrics(job, view.asked, now)
    # The order and the page of the table of replicas.
    kept = tuple((name, query[name]) for name in ("sort", "start") if query.get(name))
    address = reverse("api-metrics", args=[job.pk])
    return MetricsPanel(
        view=view,
        base=view.query(start="", end=""),
        url=address,
        csv=f"{address}?{view.query()}&format=csv".replace("?&", "?"),
        live=job.state not in TERMINAL,
        names=known,
        bands=found.bands,
        thinned=found.thinned,
        step=timedelta(seconds=found.span.step),
        start=datetime.fromtimestamp(found.span.start, UTC),
        end=datetime.fromtimestamp(found.span.end, UTC),
        spans=tuple(
            (span, gettext(words), view.query(*kept, span=span, start="", end=""))
            for span, words in SPAN_WORDS.items()
        ),
        ways=tuple((way, gettext(words)) for way, words in BANDS.items()),
        charts=tuple(_drawn(chart, found.span) for chart in found.charts),
        marks=tuple(_mark(mark) for mark in reversed(found.marks)),
        kept=kept,
    )


def newest_points(job: Job, query: Mapping[str, str], now: datetime) -> str:
    """The last steps of the charts of the page, as the REST API writes them: static/charts adds them to those it has.

    They are of the newest time also where the page shows an earlier one, which it may leave.
    """
    known = tuple(job.replicas.order_by("pool", "index").values_list("name", flat=True))
    asked = replace(View.of(query, known), start="", end="").asked
    found = metrics(job, asked, now).newest(NEWEST)
    if not found.charts:
        return ""
    answer = {
        "from": datetime.fromtimestamp(found.span.start, UTC).isoformat(),
        "step": found.span.step,
        "count": found.span.count,
        "running": job.state not in TERMINAL,
        "bands": found.bands,
        "metrics": [
            {
                "name": chart.metric.name,
                "lines": [{"name": line.name, "values": line.values} for line in chart.lines],
            }
            for chart in found.charts
        ],
        "events": [
            {
                **{name: getattr(mark, name) for name in ("kind", "subject", "state", "text", "count")},
                "time": mark.at.isoformat(),
            }
            for mark in found.marks
        ],
    }
    return json.dumps(answer, separators=(",", ":"))


def _drawn(chart: Chart, span: Span) -> DrawnChart:
    unit, title = chart.metric.unit, gettext(chart.metric.title)
    every = [value for line in chart.lines for value in line.values if value is not None]
    top = float(100 if unit is Unit.PERCENT else max(every, default=0)) or 1.0
    last = [known[-1] for line in chart.lines if (known := [v for v in line.values if v is not None])]
    words = _("{title}: {mean} at the end, between {least} and {most}").format(
        title=title,
        mean=in_words(sum(last) / len(last) if last else 0, unit),
        least=in_words(min(every, default=0), unit),
        most=in_words(max(every, default=0), unit),
    )
    return DrawnChart(
        name=chart.metric.name,
        title=title,
        of=in_words(chart.top, unit) if chart.top and unit is not Unit.PERCENT else "",
        top=in_words(top, unit),
        words=words,
        lines=tuple(_line(line.name, line.values, span, top, unit) for line in chart.lines),
    )


def _line(name: str, values: Sequence[Value], span: Span, top: float, unit: Unit) -> DrawnLine:
    known = [value for value in values if value is not None]
    size = -(-len(values) // DRAWN)
    points = []
    for at in range(0, len(values), size):
        # Of each stretch the highest point stays, so that no peak is lost.
        stretch = [value for value in values[at : at + size] if value is not None]
        if stretch:
            moment = datetime.fromtimestamp(span.start + at * span.step, UTC)
            points.append((moment, float(max(stretch))))
    start, end = (datetime.fromtimestamp(at, UTC) for at in (span.start, span.end))
    gap = timedelta(seconds=1.5 * size * span.step)
    return DrawnLine(
        name=band_word(name),
        path=path(points, start, end, top, gap),
        last=in_words(values[-1] if values else None, unit),
        least=in_words(min(known, default=None), unit),
        mean=in_words(sum(known) / len(known) if known else None, unit),
        most=in_words(max(known, default=None), unit),
    )


def band_word(name: str) -> str:
    """The names of bands in the language of the page; other lines have names of replicas."""
    words = {"min": _("smallest"), "median": _("middle"), "max": _("largest")}
    return words.get(name, name)


def in_words(value: Value, unit: Unit) -> str:
    if value is None:
        return "–"
    if unit is Unit.MEBIBYTES:
        return sizes.mebibytes(round(value))
    if unit is Unit.BYTES_PER_SECOND:
        return sizes.rate(round(value))
    if unit is Unit.CORES:
        return _("{number} CPUs").format(number=sizes.decimal(value))
    return f"{value:.0f} {'%' if unit is Unit.PERCENT else unit.value}"


def _mark(mark: Mark) -> MarkLine:
    word, icon = WORDS[mark.kind]
    state = badges.word(mark.state) if mark.state else ""
    return MarkLine(mark.at, gettext(word), icon, mark.subject, state, mark.text, mark.count - 1)


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo and 1970 < found.year < 3000 else None
