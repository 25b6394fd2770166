"""The charts of a job in a real browser: one cursor, zoom in the address, bands, gaps, tables, and a strict CSP."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from console.presenters.metrics.metric_lines import BY_NAME, METRICS, Line, Span, Value, step_for
from console.presenters.metrics.metric_marks import Mark
from console.presenters.metrics.metrics import Chart, Metrics
from console.presenters.metrics.metrics_page import MetricsPanel, View, _drawn, _mark
from tests.browser.static_site import metrics_page, served
from tests.harness.browser import query_of

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SHOWN = ("gpuUtilization", "gpuPower", "memory", "networkReceive")
PIXELS = """box => { const c = box.querySelector('canvas');
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  let found = 0; for (let at = 3; at < data.length; at += 4) found += data[at] > 0; return found; }"""


class Job:
    """Stands in for the REST API: the lines of a job that has run since START until `now`."""

    def __init__(self, lines=("a", "b"), bands=False, gap=(0, 0), running=True):
        self.names = ("min", "median", "max") if bands else lines
        self.bands, self.gap, self.running = bands, gap, running
        self.now = START + timedelta(hours=1)
        self.asked = []
        self.broken = False

    def span(self, query):
        end = datetime.fromisoformat(query["to"]) if "to" in query else self.now
        start = (
            datetime.fromisoformat(query["from"]) if "from" in query else max(START, end - timedelta(hours=1))
        )
        return Span.of(start, end, int(query.get("step", 0)) or step_for((end - start).total_seconds()))

    def value(self, at, number) -> Value:
        minute = (at - START.timestamp()) / 60
        return None if self.gap[0] <= minute < self.gap[1] else 20 + 10 * number + int(minute) % 10

    def metrics(self, query):
        span = self.span(query)
        moments = [span.start + at * span.step for at in range(span.count)]
        lines = tuple(
            Line(name, "" if self.bands else name, None, [self.value(at, n) for at in moments])
            for n, name in enumerate(self.names)
        )
        charts = tuple(
            Chart(BY_NAME[name], 100 if name == "gpuUtilization" else None, lines) for name in SHOWN
        )
        mark = Mark(START + timedelta(minutes=30), "restart", "a", "STARTING", 1, "It was killed.", 2)
        marks = (mark,) if span.start <= mark.at.timestamp() < span.end else ()
        return Metrics(span, START, self.now, self.bands, False, tuple(self.names), charts, marks)

    def page(self):
        found = self.metrics({})
        return metrics_page(
            MetricsPanel(
                view=View(),
                base="",
                url="/api/v1/jobs/1/metrics",
                csv="/api/v1/jobs/1/metrics?format=csv",
                live=self.running,
                names=tuple(self.names),
                bands=self.bands,
                thinned=False,
                step=timedelta(seconds=15),
                start=START,
                end=self.now,
                spans=(("hour", "last hour", ""), ("day", "last day", "span=day")),
                ways=(("", "as suits their number"),),
                charts=tuple(_drawn(chart, found.span) for chart in found.charts),
                marks=tuple(_mark(mark) for mark in found.marks),
            )
        )

    def answer(self, route):
        query = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        self.asked.append(query)
        if self.broken:
            route.abort()
            return
        route.fulfill(body=json.dumps(self.told(self.metrics(query))), content_type="application/json")

    def push(self, page):
        """As the page's socket does."""
        newest = json.dumps(self.told(self.metrics({}).newest(8)))
        page.evaluate("text => { document.getElementById('job-points').textContent = text; }", newest)

    def told(self, found):
        return {
            "from": datetime.fromtimestamp(found.span.start, UTC).isoformat(),
            "step": found.span.step,
            "count": found.span.count,
            "running": self.running,
            "bands": self.bands,
            "metrics": [
                {
                    "name": chart.metric.name,
                    "unit": chart.metric.unit.value,
                    "top": chart.top,
                    "lines": [
                        {"name": line.name, "replica": line.replica, "gpu": None, "values": line.values}
                        for line in chart.lines
                    ],
                }
                for chart in found.charts
            ],
            "events": [
                {
                    "time": mark.at.isoformat(),
                    "kind": mark.kind,
                    "subject": mark.subject,
                    "state": mark.state,
                    "text": mark.text,
                    "count": mark.count,
                }
                for mark in found.marks
            ],
        }


@pytest.fixture
def charts(page):
    """Opens the page of a job. Its clock can be moved on, and what breaks the CSP is noted."""
    violations = []
    page.on(
        "console",
        lambda line: violations.append(line.text) if "Content Security Policy" in line.text else None,
    )
    stack = []

    def opened(job, query="", wait=True):
        page.route("**/api/v1/jobs/1/metrics**", job.answer)
        site = served(job.page())
        url = site.__enter__()
        stack.append(site)
        page.clock.install()
        page.goto(url + query)
        if wait:
            drawn(page, 1)
        return page

    yield opened
    for site in stack:
        site.__exit__(None, None, None)
    assert violations == []


def drawn(page, times):
    page.wait_for_function(
        "times => Number(document.getElementById('job-charts').dataset.drawn) >= times", arg=times
    )


def address(page):
    return {name: values[0] for name, values in query_of(page).items()}


def box_of(page, metric):
    return page.locator(f'[data-metric="{metric}"] .u-over')


def test_one_cursor_over_all_charts(charts):
    page = charts(Job())
    assert page.locator("canvas").count() == len(SHOWN) + 1
    assert page.locator('[data-metric="cpu"]').count() == 0
    values = page.locator('[data-metric="networkReceive"] .chart-legend li span')
    newest = values.all_inner_texts()
    box_of(page, "gpuPower").hover(position={"x": 40, "y": 30})
    page.wait_for_function(
        "old => document.querySelector('[data-metric=\"networkReceive\"] .chart-legend li span').textContent !== old",
        arg=newest[0],
    )
    shares = page.locator(".u-over").evaluate_all(
        """all => all.map(over => {
          const [box, cursor] = [over, over.querySelector('.u-cursor-x')].map(each => each.getBoundingClientRect());
          return (cursor.x - box.x) / box.width;
        })"""
    )
    assert len(shares) == len(SHOWN) + 1 and max(shares) - min(shares) < 0.01 and shares[0] > 0.05
    assert "Nov 21" in page.locator(".chart-strip p").inner_text()


def test_what_happened_is_told_under_the_cursor(charts):
    page = charts(Job())
    over = box_of(page, "gpuPower")
    width = over.bounding_box()["width"]
    over.hover(position={"x": width / 2, "y": 30})
    said = page.locator(".chart-strip p")
    said.filter(has_text="×2").wait_for()
    assert "a starting ×2: It was killed." in said.inner_text()


def test_zoom_is_in_the_address(charts):
    job = Job()
    page = charts(job)
    over = box_of(page, "memory").bounding_box()
    y = over["y"] + 30
    page.mouse.move(over["x"] + over["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] * 0.5, y, steps=5)
    page.mouse.up()
    drawn(page, 2)
    asked = address(page)
    first, last = (datetime.fromisoformat(asked[name]) for name in ("from", "to"))
    assert abs((first - START).total_seconds() - 900) < 60 and abs((last - START).total_seconds() - 1800) < 60
    assert job.asked[-1]["from"] == asked["from"] and len(job.asked) == 2
    # The same address shows the same; a button and a key show the whole time again.
    page.reload()
    drawn(page, 1)
    assert job.asked[-1]["from"] == asked["from"]
    page.get_by_role("button", name="Whole time").click()
    drawn(page, 2)
    assert "from" not in address(page) and "from" not in job.asked[-1]


def test_the_table_of_use_keeps_the_zoom_when_it_is_sorted(charts):
    """Its links were written before, for the whole time. htmx reads them when the page comes."""
    page = charts(Job())
    add = "document.body.insertAdjacentHTML('beforeend', `<a id=sorts href='?sort=silent#job-use'>sort</a>`)"
    page.evaluate(add)
    page.locator("[data-charts]").focus()
    page.keyboard.press("+")
    drawn(page, 2)
    zoomed = address(page)
    boosted = """path => { const detail = { boosted: true, path };
      document.dispatchEvent(new CustomEvent('htmx:configRequest', { detail })); return detail.path; }"""
    path = page.evaluate(boosted, "?sort=silent#job-use")
    assert {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()} == {
        **zoomed,
        "sort": "silent",
    }
    assert page.evaluate(boosted, "?span=day#job-charts") == "?span=day#job-charts"
    page.locator("#sorts").click()
    assert address(page) == {**zoomed, "sort": "silent"}


def test_keys_zoom_and_move(charts):
    page = charts(Job())
    page.locator("[data-charts]").focus()
    page.keyboard.press("+")
    drawn(page, 2)
    first = datetime.fromisoformat(address(page)["from"])
    assert abs((first - START).total_seconds() - 900) <= 1
    page.keyboard.press("Shift+ArrowRight")
    drawn(page, 3)
    assert abs((datetime.fromisoformat(address(page)["from"]) - first).total_seconds() - 450) <= 31
    page.keyboard.press("0")
    drawn(page, 4)
    assert "from" not in address(page)
    page.keyboard.press("ArrowRight")
    page.locator(".chart-strip p").filter(has_text="Nov 21").wait_for()


def test_a_line_is_switched_off_in_all_charts_and_in_the_address(charts):
    page = charts(Job())
    before = {name: page.locator(f'[data-metric="{name}"]').evaluate(PIXELS) for name in SHOWN}
    page.locator('[data-metric="memory"]').get_by_role("button", name="b", exact=True).click()
    page.locator('[data-metric="gpuPower"] button[aria-pressed="false"]').wait_for()
    page.wait_for_function(
        """count => document.querySelectorAll('[aria-pressed="false"]').length === count""", arg=len(SHOWN)
    )
    assert address(page)["hide"] == "b"
    page.clock.run_for(100)
    assert all(page.locator(f'[data-metric="{name}"]').evaluate(PIXELS) < before[name] for name in SHOWN)
    page.reload()
    drawn(page, 1)
    assert page.locator('[aria-pressed="false"]').count() == len(SHOWN)


def test_bands_are_smallest_middle_and_largest(charts):
    page = charts(Job(bands=True))
    names = page.locator('[data-metric="memory"] .chart-legend button').all_inner_texts()
    assert names == ["smallest", "middle", "largest"]


def test_a_gap_is_a_gap(charts, page):
    """Where there is no sample, neither the server nor the script draws a line."""
    whole = charts(Job(lines=("a",))).locator('[data-metric="memory"]').evaluate(PIXELS)
    page.unroute_all()
    page.goto("about:blank")
    job = Job(lines=("a",), gap=(10, 50))
    broken = charts(job)
    broken.locator('[data-metric="memory"]').wait_for()
    assert broken.locator('[data-metric="memory"]').evaluate(PIXELS) < whole
    assert job.metrics({}).charts[0].lines[0].values.count(None) == 160


def test_a_chart_has_a_table_of_the_same_values(charts):
    page = charts(Job())
    figure = page.locator('[data-metric="gpuUtilization"]')
    figure.locator("summary").click()
    figure.locator("tbody tr").nth(200).wait_for()
    assert figure.locator("tbody tr").count() == 240
    assert figure.locator("thead th").all_inner_texts() == ["Time", "a", "b"]
    assert figure.locator("tbody tr").last.locator("td").all_inner_texts() == ["20 %", "30 %"]


def test_new_points_are_pushed_and_nothing_is_asked_for(charts):
    job = Job()
    page = charts(job)
    figure = page.locator('[data-metric="gpuUtilization"]')
    figure.locator("summary").click()
    first = figure.locator("tbody th").last.inner_text()
    job.now += timedelta(minutes=1)
    job.push(page)
    drawn(page, 2)
    assert figure.locator("tbody tr").count() == 240
    assert figure.locator("tbody th").last.inner_text() != first
    page.clock.run_for(60_000)
    assert len(job.asked) == 1


def test_a_page_that_missed_points_asks_for_all(charts):
    job = Job()
    page = charts(job)
    job.now += timedelta(minutes=10)
    job.push(page)
    drawn(page, 2)
    assert len(job.asked) == 2 and "from" not in job.asked[-1]


def test_points_that_come_while_an_earlier_time_is_looked_at_change_nothing(charts):
    job = Job()
    page = charts(job)
    page.locator("[data-charts]").focus()
    page.keyboard.press("+")
    drawn(page, 2)
    job.now += timedelta(minutes=1)
    job.push(page)
    page.evaluate("() => new Promise(done => setTimeout(done))")
    assert page.locator("#job-charts").get_attribute("data-drawn") == "2" and len(job.asked) == 2


def test_a_failure_is_said_and_the_lines_stay(charts):
    job = Job()
    page = charts(job)
    job.broken = True
    job.now += timedelta(minutes=10)
    job.push(page)
    page.locator(".chart-strip p").filter(has_text="could not be fetched").wait_for()
    assert page.locator("canvas").count() == len(SHOWN) + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_follow_the_theme_and_fit_a_phone(charts, page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 700})
    charts(Job())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator('[data-metric="memory"]').evaluate(PIXELS) > 1000
    line = """() => getComputedStyle(document.documentElement).colorScheme"""
    assert page.evaluate(line) == "light dark"


def test_without_scripts_the_server_has_drawn_the_same(chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    with served(Job().page()) as url:
        page.goto(url)
        assert page.locator("figure svg path").count() == 2 * len(SHOWN)
        assert (
            "GPU power" in page.locator("figure").nth(1).inner_text() and page.locator("canvas").count() == 0
        )
        assert page.locator("figure").first.locator("table tbody tr").count() == 2
    context.close()


def test_the_names_of_metrics_are_known():
    assert set(SHOWN) < {metric.name for metric in METRICS}
