"""The log viewer in a real browser: what it asks for, shows and acknowledges, over a long log as over a short one."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.log_product import ROWS, Product, numbered, wait_for_text
from tests.browser.static_site import served, viewer_page


@pytest.fixture(scope="module")
def site():
    with served(viewer_page()) as address:
        yield address


@pytest.fixture
def viewer(page, site):
    def open_on(data=b""):
        product = Product(page, data)
        page.goto(site)
        return product

    return open_on


def test_the_viewer_follows_the_log_pauses_and_continues(page, viewer):
    product = viewer(b"first\n")
    wait_for_text(page, "first")
    product.print(b"\x1b[32msecond\x1b[0m\n")
    wait_for_text(page, "second")
    assert page.locator(".log-body .f-2").inner_text() == "second"
    page.get_by_role("button", name="Pause").click()
    page.wait_for_function("document.querySelector('[data-part=follow]').textContent === 'Follow'")
    product.print(b"third\n")
    page.get_by_text("6 bytes further down").wait_for()
    assert page.locator(ROWS).count() == 2
    page.get_by_role("button", name="Follow").click()
    wait_for_text(page, "third")
    assert page.locator(ROWS).all_text_contents() == ["first", "second", "third"]


def test_a_complete_log_can_not_be_paused_until_its_replica_starts_again(page, viewer):
    product = viewer(b"first\n")
    wait_for_text(page, "first")
    pause = page.locator("[data-part=follow]")
    pause.focus()
    product.status = {"complete": True, "phase": "closed", "matches": None}
    product.head()
    expect(pause).to_be_hidden()
    expect(page.locator("[data-part=end]")).to_be_focused()
    product.status = {"complete": False, "phase": "running", "matches": None}
    product.head()
    expect(pause).to_be_visible()


def test_the_viewer_keeps_only_a_window_of_a_long_log(page, viewer):
    data = numbered(0, 60_000)
    product = viewer(data)
    wait_for_text(page, "0059999")
    body = page.locator(".log-body")
    assert page.locator(ROWS).count() < 4500
    # Upwards, further than what came first.
    for _ in range(4):
        first = page.locator(ROWS).first.text_content()
        body.evaluate("(node) => { node.scrollTop = 300; node.scrollTop = 0; }")
        page.wait_for_function(
            "(was) => document.querySelector('.log-body .row').textContent !== was", arg=first
        )
    shown = page.locator(ROWS).all_text_contents()
    steps = [int(row.split()[1]) for row in shown]
    assert steps == list(range(steps[0], steps[0] + len(steps))) and steps[-1] < 59_999 and len(steps) <= 4000
    page.get_by_role("button", name="Start").click()
    wait_for_text(page, "0000000")
    product.print(b"the newest line\n")
    # Downwards by scrolling, then to the end at once.
    last = page.locator(ROWS).last.text_content()
    body.evaluate("(node) => { node.scrollTop = node.scrollHeight; }")
    page.wait_for_function(
        "(was) => [...document.querySelectorAll('.log-body .row')].at(-1).textContent !== was", arg=last
    )
    page.get_by_role("button", name="End").click()
    wait_for_text(page, "the newest line")
    steps = [int(row.split()[1]) for row in page.locator(ROWS).all_text_contents()[:-1]]
    assert steps == list(range(steps[0], 60_000))


def test_gaps_restarts_and_the_end_are_shown(page, viewer):
    product = viewer(b"before\n")
    wait_for_text(page, "before")
    product.socket.send(json.dumps({"run": "r0", "gap": "the disk was full", "at": 7, "to": 107}))
    product.socket.send(b"after the gap")
    wait_for_text(page, "after the gap")
    product.run, product.sent = "r1", 0
    product.runs["r1"] = bytearray(b"again\n")
    product.head(at=0, restart=True, attempt=1, number=1, host="gpu-b")
    product.pour()
    wait_for_text(page, "again")
    assert page.locator(ROWS).all_text_contents() == [
        "before",
        "100 bytes missing here (7 to 107): the disk was full",
        "after the gap",
        "Started again: attempt 1, start 2, on gpu-b",
        "again",
    ]
    product.status = {"complete": True, "matches": True, "digest_here": "sha256:abc", "phase": "closed"}
    product.head()
    page.get_by_text("Complete: 6 bytes, SHA-256 abc equal to the host's").wait_for()


def test_the_viewer_reconnects_at_the_same_offset(page, viewer):
    product = viewer(b"one\ntw")
    wait_for_text(page, "tw")
    product.socket.close(code=1012)
    product.runs["r0"] += b"o\nthree\n"
    wait_for_text(page, "three")
    assert page.locator(ROWS).all_text_contents() == ["one", "two", "three"]
    assert {"run": "r0", "from": 6, "id": 2} in product.messages


def test_the_viewer_of_a_long_log_reconnects_behind_its_last_byte(page, viewer):
    """It began in the middle of a line, which it does not show."""
    data = numbered(0, 60_000)
    product = viewer(data)
    wait_for_text(page, "0059999")
    product.socket.close(code=1012)
    product.runs["r0"] += numbered(60_000, 60_001)
    wait_for_text(page, "0060000")
    assert {"run": "r0", "from": len(data), "id": 2} in product.messages
    steps = [int(row.split()[1]) for row in page.locator(ROWS).all_text_contents()]
    assert steps == list(range(steps[0], 60_001))


def test_search_in_the_loaded_rows(page, viewer):
    viewer(numbered(0, 30) + b"needle here\n" + numbered(30, 60) + b"a NEEDLE there\n")
    wait_for_text(page, "there")
    page.get_by_placeholder("Search").fill("needle")
    page.get_by_text("2 in the loaded lines").wait_for()
    page.get_by_placeholder("Search").press("Enter")
    assert page.locator(".log-body .row.now").inner_text() == "needle here"
    page.get_by_role("button", name="Previous hit").click()
    assert page.locator(".log-body .row.now").inner_text() == "a NEEDLE there"
    page.get_by_placeholder("Search").fill("")
    assert page.locator(".log-body .hit").count() == 0


def test_the_viewer_acknowledges_what_it_has_shown(page, viewer):
    """In steps: a quiet log needs no message back, and unacknowledged bytes stay far below the server's window."""
    product = viewer(b"x" * 63 + b"\n")
    wait_for_text(page, "xxx")
    product.print(numbered(0, 12_000))
    wait_for_text(page, "0011999")
    total = 64 + len(numbered(0, 12_000))
    for _ in range(600):
        acks = [message["ack"] for message in product.messages if "ack" in message]
        if acks and acks[-1] > total - 32 * 1024:
            break
        page.wait_for_timeout(50)
    assert total - 32 * 1024 < acks[-1] <= total and acks == sorted(acks)


def test_a_hidden_tab_receives_nothing_and_catches_up_when_shown(page, viewer):
    product = viewer(b"seen\n")
    wait_for_text(page, "seen")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate("() => { const wait = setTimeout; window.setTimeout = (what) => wait(what, 0); }")
    page.evaluate(hide, True)
    for _ in range(600):
        if product.paused:
            break
        page.wait_for_timeout(50)
    product.print(b"while nobody looked\n")
    product.print(numbered(0, 20_000))
    page.wait_for_timeout(200)
    assert page.locator(ROWS).all_text_contents() == ["seen"]
    page.evaluate(hide, False)
    wait_for_text(page, "0019999")
    # Far behind, it shows the end at once, and what lies between when one scrolls there.
    assert page.locator(ROWS).count() < 4000
    assert [message for message in product.messages if message.get("tail")][-1]["id"] == 2


def test_search_in_the_whole_log_goes_piece_by_piece_and_a_hit_leads_to_its_place(page, viewer):
    data = numbered(0, 20_000)
    viewer(data)
    wait_for_text(page, "step 0019999")
    asked = []

    def search(route):
        what = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        asked.append((what["q"], int(what["from"])))
        start, end = (0, len(data) // 2) if what["from"] == "0" else (len(data) // 2, len(data))
        line = data.index(b"step 0000300" if start == 0 else b"step 0015300")
        hits = [{"offset": line + 5, "line": line, "text": data[line : line + 20].decode() + "<b>"}]
        route.fulfill(json={"run": what["run"], "hits": hits, "searchedTo": end, "stored": len(data)})

    page.route("**/log/search?**", search)
    page.get_by_placeholder("Search the loaded lines").fill("5300 loss")
    page.get_by_role("button", name="Whole log").click()
    page.get_by_text("2 lines", exact=True).wait_for()
    assert asked == [("5300 loss", 0), ("5300 loss", len(data) // 2)]
    lines = page.locator(".log-found li button")
    assert lines.all_inner_texts() == ["step 0000300 loss 0.<b>", "step 0015300 loss 0.<b>"]
    lines.last.click()
    expect(page.locator(".log-body .row.now").filter(has_text="step 0015300")).to_be_in_viewport()
    page.set_viewport_size({"width": 390, "height": 800})
    wide, there = page.evaluate(
        "(() => { const bar = document.querySelector('.log-bar'); return [bar.scrollWidth, bar.clientWidth]; })()"
    )
    assert wide <= there < 390
    page.get_by_role("button", name="Close").click()
    assert page.locator(".log-found").is_hidden()


def test_a_hit_in_another_replica_opens_its_log(page, viewer):
    product = viewer(b"mine\n")
    wait_for_text(page, "mine")
    other = numbered(0, 20_000)
    product.runs["r1"] = other
    line = other.index(b"step 0015300")
    asked = []

    def search(route):
        what = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        asked.append(what)
        page_number = int(what.get("pageToken", 0))
        where = {"replica": "workerpool1-0", "run": "r1", "attempt": 2, "number": 0, "host": "gpu-2"}
        hit = {
            **where,
            "time": "2026-11-22T12:01:02Z",
            "offset": line + 5,
            "line": line,
            "text": "step 0015300",
        }
        hits = [hit | {"text": f"step {page_number}.{n}"} for n in range(150)] if page_number else [hit]
        more = {"nextPageToken": str(page_number + 1)} if page_number < 3 else {}
        route.fulfill(json={"hits": hits, "searched": 5_000_000, "stored": 9_000_000, **more})

    page.route("**/api/v1/jobs/1/log/search?**", search)
    page.get_by_placeholder("Search the loaded lines").fill("15300")
    page.get_by_role("button", name="All replicas").click()
    # Two hundred lines are enough to look at; more come as one scrolls.
    page.get_by_text("301 lines in 5 MB of 9 MB", exact=True).wait_for()
    lines = page.locator(".log-found li button")
    assert [what.get("pageToken") for what in asked] == [None, "1", "2"] and asked[0]["runs"] == "newest"
    expect(lines.first).to_have_text("workerpool1-0 attempt 2, start 1 12:01:02 step 0015300")
    page.locator(".log-found ol").evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
    page.get_by_text("451 lines", exact=True).wait_for()
    assert page.get_by_role("button", name="Continue the search").is_hidden()
    lines.first.click()
    expect(page.locator(".log-body .row.now").filter(has_text="step 0015300")).to_be_in_viewport()
    expect(page.get_by_role("log", name="Output of workerpool1-0")).to_be_visible()
    assert lines.count() == 451
    page.get_by_label("earlier runs too").check()
    page.get_by_text("301 lines in 5 MB of 9 MB", exact=True).wait_for()
    assert asked[-1]["runs"] == "all"


def test_of_a_flood_only_the_newest_lines_are_painted_and_the_others_are_fetched(page, viewer):
    product = viewer(b"begin\n")
    wait_for_text(page, "begin")
    product.print(numbered(0, 2500))
    wait_for_text(page, "0002499")
    steps = shown_steps(page)
    assert len(steps) <= 500 and steps == list(range(2500 - len(steps), 2500))
    last = page.locator(f"{ROWS} .gutter").last
    expect(last).to_have_attribute("data-line", "2501")
    page.locator(".log-body").evaluate("body => { body.scrollTop = 100 }")
    page.get_by_role("button", name="Follow").wait_for()
    page.locator(".log-body").evaluate("body => { body.scrollTop = 0 }")
    page.wait_for_function(f"document.querySelectorAll('{ROWS}').length > {len(steps) + 1000}")
    steps = shown_steps(page)
    assert steps == list(range(2500 - len(steps), 2500)) and len(steps) > 1500


@pytest.mark.parametrize("before", [b"", b"\x1b[31mred from here on\n"])
def test_a_long_log_opens_at_its_end_as_if_all_of_it_had_been_read(page, viewer, before):
    """Colours reach over lines. Without any, the lines that are not painted are not even read."""
    viewer(before + numbered(0, 2500))
    wait_for_text(page, "0002499")
    steps = shown_steps(page)
    assert len(steps) <= 500 and steps == list(range(2500 - len(steps), 2500))
    last = page.locator(ROWS).last
    expect(last.locator(".gutter")).to_have_attribute("data-line", "2501" if before else "2500")
    assert last.locator(".f-1").count() == bool(before)
    page.locator(".log-body").evaluate("body => { body.scrollTop = 100 }")
    page.locator(".log-body").evaluate("body => { body.scrollTop = 0 }")
    page.locator(ROWS).nth(2499).wait_for(state="attached")
    assert shown_steps(page) == list(range(2500))
    assert page.locator(f"{ROWS} .gutter").first.get_attribute("data-line") == "1"


READ = """async ({ text, count }) => {
  const { lastLines } = await import("/static/log/notes.js");
  return lastLines(new TextEncoder().encode(text), count);
}"""


@pytest.mark.parametrize(
    ("text", "begin"),
    [("", 0), ("a", 0), ("\n", 0), ("a\nb\n", 0), ("a\nb\nc\n", 2), ("a\nb\nc\nd", 2), ("\n\n\n", 1)],
)
def test_where_the_last_two_lines_begin(page, viewer, text, begin):
    viewer()
    assert page.evaluate(READ, {"text": text, "count": 2}) == begin


def shown_steps(page):
    texts = page.locator(ROWS).all_text_contents()
    return [int(text.split()[1]) for text in texts if text.startswith("step")]
