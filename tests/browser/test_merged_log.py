"""The log of all replicas in a real browser: by time, equal lines folded, each line once over a reconnect."""

from __future__ import annotations

import json
import math
import re
import time
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from django.template.loader import render_to_string
from playwright.sync_api import expect

from tests.browser.static_site import page_of, served
from tests.harness.browser import query_of

T = 1_700_000_000.0
ROWS = ".log-body .row"


def merged_page(**more):
    shown = {"job_id": 1, "job": {"replica_count": 2, "restarted": False}, "log_url": "/jobs/1/log/NAME"}
    box = render_to_string("jobs/_merged_log.html", shown | more)
    return page_of("Log", ["log.css"], "log/merged.js", box)


@pytest.fixture(scope="module")
def site():
    with served(merged_page()) as address:
        yield address


@pytest.fixture(scope="module")
def site_of_two():
    """The page of a job of many replicas, of which the person has chosen two."""
    names = "workerpool0-0,workerpool1-0"
    with served(merged_page(replicas=names, chosen=names)) as address:
        yield address


class Product:
    """The socket of the merged log."""

    def __init__(self, page, count):
        self.runs = [{"id": f"r{n}", "replica": f"workerpool{n > 0:d}-{max(n - 1, 0)}"} for n in range(count)]
        self.messages = []
        self.sent = 0
        page.route_web_socket("**/ws/**", self.connected)

    def connected(self, socket):
        self.socket, self.sent = socket, 0
        socket.on_message(self.heard)

    def heard(self, text):
        message = json.loads(text)
        self.messages.append(message)
        if message.get("begin"):
            # The numbers of runs are those of this connection.
            self.numbers = {run["id"]: n for n, run in enumerate(reversed(self.runs))}
            runs = [{"from": 0, **run, "number": self.numbers[run["id"]]} for run in self.runs]
            self.socket.send(json.dumps({"runs": runs}))

    def print(self, *lines):
        """Each line: the run, where it ends, how long after T, the text."""
        self.sent += sum(len(line[3]) + 1 for line in lines)
        rows = [[self.numbers[run], end, T + at, text, *more] for run, end, at, text, *more in lines]
        self.socket.send(json.dumps({"rows": rows, "sent": self.sent}))


@pytest.fixture
def viewer(page, site):
    def open_on(count=2, query="", begins=0):
        product = Product(page, count)
        for run in product.runs:
            run["from"] = begins
        page.goto(site + query)
        page.get_by_text(f"rows of {count} logs").wait_for()
        return product

    return open_on


def shown(page):
    wanted = "(rows) => rows.map((row) => [row.querySelector('.rank')?.dataset.rank, row.textContent])"
    return [tuple(row) for row in page.locator(ROWS).evaluate_all(wanted)]


def test_lines_stand_by_time_and_late_ones_go_to_their_place(page, viewer):
    product = viewer()
    product.print(("r0", 4, 1, "one"), ("r1", 4, 2, "two"), ("r0", 9, 5, "\x1b[31mfive\x1b[0m"))
    expect(page.locator(ROWS)).to_have_count(3)
    product.print(
        ("r1", 9, 3, "late"),
        ("r0", 14, 5, "a clock that was set back"),
        ("r1", 99, 6, "12 bytes missing", "note"),
    )
    expect(page.locator(ROWS)).to_have_count(6)
    assert shown(page) == [
        ("workerpool0-0", "one"),
        ("workerpool1-0", "two"),
        ("workerpool1-0", "late"),
        ("workerpool0-0", "five"),
        ("workerpool0-0", "a clock that was set back"),
        ("workerpool1-0", "12 bytes missing"),
    ]
    assert page.locator(".log-body .f-1").inner_text() == "five"
    badge = page.locator(".rank").nth(1)
    badge.hover()
    assert badge.get_attribute("href") == "/jobs/1/log/workerpool1-0?run=r1&byte=3"
    colours = page.locator(".rank").evaluate_all("(all) => all.map((one) => getComputedStyle(one).color)")
    assert colours[0] == colours[3] != colours[1]


def test_equal_lines_of_64_ranks_are_one_row(page, viewer):
    product = viewer(64)
    for step in range(3):
        product.print(*((f"r{n}", 10 * step + 9, step + n / 1000, f"step {step}") for n in range(64)))
    product.print(("r5", 40, 3, "step 2"), ("r6", 40, 60, "step 2"))
    expect(page.locator(ROWS)).to_have_count(5)
    assert shown(page) == [
        ("×64", "step 0"),
        ("×64", "step 1"),
        ("×64", "step 2"),
        ("workerpool1-4", "step 2"),
        ("workerpool1-5", "step 2"),
    ]
    fold = page.get_by_role("button", name="Fold")
    fold.click()
    expect(page.locator(ROWS)).to_have_count(64 * 3 + 2)
    fold.click()
    expect(page.locator(ROWS)).to_have_count(5)


def test_the_address_says_how_the_log_is_shown(page, viewer):
    viewer(2)
    page.get_by_role("button", name="Fold").click()
    page.get_by_role("button", name="Wrap").click()
    page.locator("[data-part=times]").select_option("unix")
    assert query_of(page) == {"fold": ["off"], "wrap": ["on"], "times": ["unix"]}
    query = page.evaluate("location.search")
    # Whoever gets the address has other habits, and keeps them.
    page.evaluate("localStorage.clear()")
    viewer(2, query)
    expect(page.get_by_role("button", name="Fold")).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-part=times]")).to_have_value("unix")
    assert page.evaluate("localStorage.length") == 0


def test_each_line_is_shown_once_over_a_reconnect(page, viewer):
    product = viewer(64)
    product.print(*((f"r{n}", 5, n, f"line {n}") for n in range(64)))
    expect(page.locator(ROWS)).to_have_count(64)
    product.runs.append({"id": "r64", "replica": "workerpool1-63"})
    product.messages.clear()
    product.socket.close(code=1012)
    page.get_by_text("newest rows of 65 logs").wait_for()
    asked = {}
    for message in product.messages:
        assert len(json.dumps(message)) < 4096
        asked |= message.get("from", {})
    assert asked == {f"r{n}": 5 for n in range(64)}
    product.print(("r64", 9, 99, "the new one"), ("r0", 9, 100, "the old one"))
    expect(page.locator(ROWS)).to_have_count(66)
    assert shown(page)[-2:] == [("workerpool1-63", "the new one"), ("workerpool0-0", "the old one")]


def test_the_window_is_bounded_and_what_came_is_acknowledged(page, viewer):
    product = viewer()
    for start in range(0, 10_000, 1000):
        product.print(*(("r0", n + 1, n / 100, f"line {n} " + "x" * 90) for n in range(start, start + 1000)))
    page.locator(ROWS).filter(has_text="line 9999 ").wait_for()
    assert page.locator(ROWS).count() == 4000
    page.wait_for_function("document.querySelector('.log-body .row').textContent.startsWith('line 6000 ')")
    acks = [message["ack"] for message in product.messages if "ack" in message]
    assert acks == sorted(acks) and product.sent - acks[-1] < 128 * 1024
    body = page.locator(".log-body")
    assert body.evaluate("(node) => node.scrollHeight - node.clientHeight - node.scrollTop") < 2
    # Who scrolls up pauses the log.
    body.evaluate("(node) => { node.scrollTop = 1000; }")
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    page.wait_for_function("!document.querySelector('[data-part=more]').hidden")
    assert product.messages[-1] == {"pause": True}
    page.get_by_role("button", name="Follow").click()
    page.wait_for_function("document.querySelector('[data-part=follow]').textContent === 'Pause'")
    assert product.messages[-1] == {"pause": False}


def test_earlier_lines_come_as_one_scrolls_up_and_each_once(page, viewer):
    asked = []
    texts = [f"line {n:04d} " + "x" * 90 for n in range(6000)]

    def earlier(route):
        what = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        asked.append(what)
        stop = int(what.get("pageToken", 3010))
        steps = range(stop - 1, max(stop - 2000, 0) - 1, -1)
        lines = [["r0", (n + 1) * 101, T + n / 10, texts[n]] for n in steps]
        more = {"nextPageToken": str(stop - 2000)} if stop > 2000 else {}
        route.fulfill(json={"lines": lines, **more})

    page.route("**/log/earlier?**", earlier)
    product = viewer(begins=3000 * 101)
    product.print(*(("r0", (n + 1) * 101, n / 10, texts[n]) for n in range(3000, 6000)))
    page.locator(ROWS).filter(has_text="line 5999 ").wait_for()
    body = page.locator(".log-body")
    for first in ("line 1010 ", "line 0000 "):
        body.evaluate("(node) => { node.scrollTop = 300; node.scrollTop = 100; }")
        page.wait_for_function(
            "(text) => document.querySelector('.log-body .row').textContent.startsWith(text)", arg=first
        )
        steps = [int(text.split()[1]) for _, text in shown(page)]
        assert steps == list(range(steps[0], steps[0] + len(steps))) and len(steps) <= 4000
    assert asked == [
        {"until": f"{T + 300 + 0.001:.3f}"},
        {"until": f"{T + 300 + 0.001:.3f}", "pageToken": "1010"},
    ]
    # The end was dropped meanwhile: to follow again means to begin at the end.
    product.messages.clear()
    page.get_by_role("button", name="Follow").click()
    expect(page.locator(ROWS)).to_have_count(0)
    page.wait_for_function("document.querySelector('[data-part=follow]').textContent === 'Pause'")
    page.get_by_text("0 newest rows of 2 logs").wait_for()
    assert not any("from" in message for message in product.messages)
    product.print(("r0", 900_000, 900, "the newest"))
    page.locator(ROWS).filter(has_text="the newest").wait_for()


class Searches:
    """Answers searches with these hits: the replica, its run, the offset of the line, its text, and maybe its time."""

    def __init__(self, page, *hits):
        self.asked, self.hits = [], hits
        page.route("**/log/search?**", self.answer)

    def answer(self, route):
        self.asked.append({name: one for name, [one] in parse_qs(urlsplit(route.request.url).query).items()})
        hits = [
            {"replica": replica, "run": run, "attempt": 1, "number": 0, "host": "gpu", "offset": line + 2}
            | {"line": line, "text": text, "match": "loss"}
            | ({"time": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")} if at else {})
            for replica, run, line, text, at in self.hits
        ]
        route.fulfill(json={"hits": hits, "searched": 9, "stored": 9, "order": "time"})


def found(page):
    """The lines that a search lists."""
    return page.locator(".log-found li button")


def test_a_search_in_all_is_listed_by_time_and_leads_to_a_log_that_is_not_here(page, viewer):
    hits = ((f"workerpool1-{n}", f"gone{n}", 1, f"loss of {n}", T + 30 - n) for n in (3, 2, 1))
    searches = Searches(page, *hits)
    page.route("**/jobs/1/log/workerpool*", lambda route: route.fulfill(body="there"))
    product = viewer(4, "?q=loss&in=all")
    page.get_by_text("3 lines", exact=True).wait_for()
    assert [text[-9:] for text in found(page).all_inner_texts()] == ["loss of 3", "loss of 2", "loss of 1"]
    # The server knows which was printed first, also among what is not listed yet.
    assert searches.asked == [{"q": "loss", "runs": "newest", "order": "time"}]
    product.print(("r1", 9, 1, "a loss and a loss"))
    page.get_by_text("2 in the loaded lines").wait_for()
    # The logs of earlier runs are not among these.
    found(page).first.click()
    page.wait_for_url(re.compile(r"/jobs/1/log/workerpool1-3\?run=gone3&byte=3$"))


def test_what_is_not_in_the_order_of_times_says_so(page, viewer):
    """Of very many logs the server searches one after the other."""
    answers = [
        {"hits": [], "searched": 4e6, "stored": 9e6, "order": "replica", "nextPageToken": "1-0-0-0-0"},
        {"hits": [], "searched": 9e6, "stored": 9e6, "order": "replica"},
    ]
    told = []

    def answer(route):
        told.append(page.locator("[data-part=foundState]").text_content())
        route.fulfill(json=answers[len(told) - 1])

    page.route("**/log/search?**", answer)
    viewer(4, "?q=loss&in=all")
    page.get_by_text("No lines", exact=True).wait_for()
    assert told == ["Searching…", "No lines in 4 MB of 9 MB, replica by replica…"]


def test_a_regular_expression_is_searched_in_all_logs_with_enter(page, viewer):
    searches = Searches(page, ("workerpool1-0", "r1", 7, "a loss of 3", T + 3))
    viewer()
    page.get_by_role("button", name="Regular expression").click()
    page.locator("[data-part=search]").fill("los+")
    page.keyboard.press("Enter")
    expect(found(page)).to_have_count(1)
    assert searches.asked == [{"q": "los+", "regex": "1", "runs": "newest", "order": "time"}]


def test_a_found_line_is_shown_among_those_of_all_logs(page, viewer):
    Store(page, 20_000)
    at = 7000
    Searches(
        page,
        ("workerpool0-0", "r0", at * SIZE, TEXT.format(at), T + at + 0.0004),
        ("workerpool0-0", "r0", 9 * SIZE, TEXT.format(9), None),
    )
    page.route("**/jobs/1/log/workerpool*", lambda route: route.fulfill(body="there"))
    product = viewer(begins=20_000 * SIZE)
    page.locator("[data-part=search]").fill("7000")
    page.get_by_role("button", name="All replicas").click()
    found(page).first.click()
    row = page.locator(ROWS).filter(has_text=TEXT.format(at))
    expect(row).to_have_class(re.compile("picked"))
    expect(row).to_be_in_viewport()
    expect(row.locator("mark.this")).to_have_text("7000")
    # The lines that were found stay, and the address leads back to all of it.
    expect(found(page)).to_have_count(2)
    address = query_of(page)
    assert (address["run"], address["byte"], address["in"]) == (["r0"], [str(at * SIZE + 2)], ["all"])
    # A line that is here already is not fetched again.
    product.messages.clear()
    found(page).first.click()
    expect(row).to_be_in_viewport()
    viewer(2, page.evaluate("location.search"), begins=20_000 * SIZE)
    expect(row).to_have_class(re.compile("picked"))
    # Nobody knows when this one was printed: it has a place in its own log only.
    found(page).nth(1).click()
    page.wait_for_url(re.compile(rf"/jobs/1/log/workerpool0-0\?run=r0&byte={9 * SIZE + 2}$"))


def test_of_chosen_replicas_only_their_logs_are_searched_and_downloaded(page, site_of_two):
    searches = Searches(page, ("workerpool1-0", "r1", 7, "a loss of 3", T + 3))
    Product(page, 2)
    page.goto(site_of_two)
    page.locator("[data-part=search]").fill("loss")
    page.get_by_role("button", name="These replicas").click()
    page.get_by_text("1 line (of 2 chosen replicas)").wait_for()
    names = "workerpool0-0,workerpool1-0"
    assert searches.asked == [{"q": "loss", "runs": "newest", "order": "time", "replicas": names}]
    for name in ("Download these", "Download merged", "Download the lines"):
        address = page.get_by_role("link", name=name).get_attribute("href")
        assert parse_qs(urlsplit(address).query)["replicas"] == [names]


def test_it_fits_a_narrow_screen(page, viewer):
    page.set_viewport_size({"width": 360, "height": 700})
    product = viewer()
    product.print(("r0", 4, 1, "one " * 100))
    page.locator(ROWS).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= 360")


TEXT = "line {:05d}"
SIZE = len(TEXT.format(0)) + 1


class Store:
    """Answers for pages of lines of one log, a line each second from T on; each of 100 lines."""

    def __init__(self, page, count):
        self.count, self.asked = count, []
        page.route("**/log/earlier?**", lambda route: self.answer(route, "until", -1))
        page.route("**/log/later?**", lambda route: self.answer(route, "since", 1))

    def answer(self, route, border, way):
        query = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        self.asked.append((border, float(query[border]) - T, query.get("pageToken")))
        # The number of the next line.
        first = float(query[border]) - T
        at = (
            int(query["pageToken"])
            if "pageToken" in query
            else math.floor(first)
            if way < 0
            else math.ceil(first)
        )
        at = min(max(at, 0 if way > 0 else -1), self.count - 1)
        stop = max(at - 100, -1) if way < 0 else min(at + 100, self.count)
        lines = [["r0", (n + 1) * SIZE, T + n, TEXT.format(n)] for n in range(at, stop, way)]
        more = {"nextPageToken": str(stop)} if 0 <= stop < self.count else {}
        route.fulfill(json={"lines": lines, **more})


def numbers(page):
    return [int(text.split()[1]) for _, text in shown(page)]


def seen(page):
    """The numbers of the lines that can be seen."""
    script = """() => {
      const box = document.querySelector(".log-body").getBoundingClientRect();
      return [...document.querySelectorAll(".log-body .row")].filter((row) => {
        const { top, bottom } = row.getBoundingClientRect();
        return bottom > box.top && top < box.bottom;
      }).map((row) => Number(row.textContent.split(" ")[1]));
    }"""
    return page.evaluate(script)


def scroll(page, to):
    page.locator(".log-body").evaluate(f"(node) => {{ node.scrollTop = {to}; }}")


def wait_for_line(page, number):
    page.locator(ROWS).filter(has_text=TEXT.format(number)).wait_for(state="attached")


def read_on(page, way, number):
    """Scroll up or down until this line is loaded."""
    line = page.locator(ROWS).filter(has_text=TEXT.format(number))
    deadline = time.monotonic() + 60
    while not line.count():
        assert time.monotonic() < deadline, (numbers(page)[0], numbers(page)[-1])
        scroll(page, 100 if way < 0 else "node.scrollHeight - node.clientHeight - 100")
        scroll(page, 0 if way < 0 else "node.scrollHeight")
        page.wait_for_timeout(20)


def in_order(found):
    return found == list(range(found[0], found[0] + len(found)))


def test_one_goes_to_a_time_and_reads_on_in_both_directions(page, viewer):
    store = Store(page, 20_000)
    product = viewer(begins=20_000 * SIZE)
    at = datetime.fromtimestamp(T + 10_005, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    page.locator("[data-part=time]").fill(at)
    wait_for_line(page, 9_950)
    page.wait_for_timeout(300)
    assert 10_005 in seen(page) and in_order(numbers(page))
    assert query_of(page)["time"] == [f"{at}Z"]
    # What comes at the live end does not stand here.
    product.print(("r0", 30_000 * SIZE, 30_000, "line 30000"))
    read_on(page, 1, 11_000)
    read_on(page, -1, 9_000)
    found = numbers(page)
    assert in_order(found) and len(found) <= 4000
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("newest rows of 2 logs").wait_for()
    assert "time" not in query_of(page) and len(numbers(page)) == 0
    assert any(border == "since" and token for border, _, token in store.asked)


def test_what_left_at_the_end_comes_back_as_one_scrolls_down(page, viewer):
    Store(page, 10_000)
    viewer(begins=10_000 * SIZE)
    page.get_by_role("button", name="Start").click()
    wait_for_line(page, 0)
    read_on(page, 1, 5_000)
    assert len(numbers(page)) <= 4000 and numbers(page)[0] > 0
    read_on(page, -1, 0)
    assert numbers(page)[0] == 0 and in_order(numbers(page))
    last = numbers(page)[-1]
    read_on(page, 1, last + 100)
    assert in_order(numbers(page))


def test_a_picked_line_has_an_address_that_leads_back(page, viewer):
    Store(page, 20_000)
    viewer(begins=20_000 * SIZE)
    page.locator("[data-part=times]").select_option("utc")
    page.get_by_role("button", name="Start").click()
    wait_for_line(page, 50)
    row = page.locator(ROWS).filter(has_text=TEXT.format(5))
    row.locator(".gutter").click()
    expect(row).to_have_class(re.compile("picked"))
    assert query_of(page)["run"] == ["r0"]
    assert query_of(page)["byte"] == [str(6 * SIZE - 1)] and query_of(page)["at"] == [f"{T + 5:.3f}"]
    query = page.evaluate("location.search").replace(f"byte={6 * SIZE - 1}", f"byte={7001 * SIZE - 1}")
    viewer(query=query.replace(f"{T + 5:.3f}", f"{T + 7000:.3f}"), begins=20_000 * SIZE)
    wait_for_line(page, 6_990)
    row = page.locator(ROWS).filter(has_text=TEXT.format(7000))
    expect(row).to_have_class(re.compile("picked"))
    expect(row).to_be_in_viewport()
    expect(page.locator(".picked")).to_have_count(1)


def test_a_range_of_lines_of_several_logs_has_an_address_that_leads_back(page, viewer):
    page.route("**/log/lines?**", lambda route: route.fulfill(json={"run": "r0", "line": 1234}))
    product = viewer(3, "?times=utc")
    lines = [(f"r{n % 3}", 10 * (n // 3) + 9, n / 10, f"line {n:03d}") for n in range(12)]
    product.print(*lines)
    expect(page.locator(ROWS)).to_have_count(12)

    def click(number, **how):
        page.locator(ROWS).filter(has_text=f"line {number:03d}").locator(".gutter").click(**how)

    def picked():
        return [int(text.split()[1]) for text in page.locator(f"{ROWS}.picked").all_text_contents()]

    click(4)
    assert picked() == [4]
    # What the server counts: lines of the merged log have no number of their own.
    gutter = page.locator(f"{ROWS}.picked .gutter")
    expect(gutter).to_have_attribute("title", "Line 1,234 of workerpool1-0")
    click(8, modifiers=["Shift"])
    assert picked() == [4, 5, 6, 7, 8]
    click(2, modifiers=["Shift"])
    assert picked() == [2, 3, 4]
    address = query_of(page)
    assert (address["run"], address["byte"], address["to"]) == (["r2"], ["8"], [f"r1,18,{T + 0.4:.3f}"])
    page.get_by_role("button", name="Copy link").click()
    assert query_of(page) == address

    def answer(route, some):
        route.fulfill(json={"lines": [[run, end, T + at, text] for run, end, at, text in some]})

    page.route("**/log/earlier?**", lambda route: answer(route, lines[1::-1]))
    page.route("**/log/later?**", lambda route: answer(route, lines[2:]))
    viewer(3, page.evaluate("location.search"), begins=1000)
    page.locator(ROWS).filter(has_text="line 000").wait_for()
    assert picked() == [2, 3, 4]
    # Without the Shift key it is one line again.
    click(7)
    assert picked() == [7] and "to" not in query_of(page)


def test_times_are_in_the_zone_of_the_page(chromium):
    """Not in that of the browser, if the person has chosen another one in Preferences."""
    context = chromium.new_context(timezone_id="America/New_York")
    page = context.new_page()
    with served(merged_page().replace("<html ", '<html data-zone="Asia/Tokyo" ')) as address:
        product = Product(page, 2)
        page.goto(f"{address}?times=local")
        page.get_by_text("rows of 2 logs").wait_for()
        product.print(("r0", 4, 0.5, "one"))
        gutter = page.locator(f"{ROWS} .gutter")
        expect(gutter).to_have_attribute("data-time", "07:13:20.500")
        expect(page.locator("[data-part=zoneName]")).to_have_text("GMT+9")
        page.evaluate("import('/static/frame/times.js').then((times) => times.switchToUtc())")
        expect(gutter).to_have_attribute("data-time", "22:13:20.500")
    context.close()


def test_times_since_the_start_count_from_the_start_of_the_job(page, viewer):
    page.add_init_script(
        f"addEventListener('DOMContentLoaded', () => {{ document.querySelector('.merged').dataset.began = {T}; }})"
    )
    product = viewer()
    page.locator("[data-part=times]").select_option("start")
    product.print(("r0", 4, 61.5, "one"))
    expect(page.locator(ROWS)).to_have_count(1)
    assert page.locator(".gutter").get_attribute("data-time") == "+00:01:01.500"
