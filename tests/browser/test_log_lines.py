"""Lines in the log viewer: numbers and times, links to lines, words that are found, addresses, keys."""

from __future__ import annotations

import json
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.log_product import ROWS, Product, numbered, wait_for_text
from tests.browser.static_site import served, viewer_page
from tests.harness.browser import query_of

LINE = len(numbered(0, 1))
# 2023-11-14 22:13:20 UTC
T = 1_700_000_000


@pytest.fixture(scope="module")
def site():
    with served(viewer_page()) as address:
        yield address


@pytest.fixture
def viewer(page, site):
    def open_on(data=b"", query="", times=(), search=None):
        product = Product(page, data)
        page.route("**/log/search?**", search or (lambda route: route.abort()))
        product.times = [list(mark) for mark in times]
        page.goto(site + query)
        return product

    return open_on


def numbers(page):
    """The number that is shown at each row, and the step that the row is about."""
    wanted = "(rows) => rows.map((row) => [row.querySelector('.gutter').dataset.line, row.textContent.split(' ')[1]])"
    return [(int(line), int(step)) for line, step in page.locator(ROWS).evaluate_all(wanted)]


def shown_times(page):
    return page.locator(ROWS).evaluate_all(
        "(rows) => rows.map((row) => row.querySelector('.gutter').dataset.time)"
    )


def asked(page):
    return {name: values[0] for name, values in query_of(page).items()}


def test_each_line_has_its_number_wherever_one_scrolls(page, viewer):
    product = viewer(numbered(0, 60_000))
    wait_for_text(page, "0059999")
    expect(page.locator(".gutter").last).to_have_attribute("data-line", "60000")
    assert all(line == step + 1 for line, step in numbers(page))
    first = page.locator(ROWS).first.inner_text()
    page.locator(".log-body").evaluate("(node) => { node.scrollTop = 300; node.scrollTop = 0; }")
    page.wait_for_function("(was) => document.querySelector('.log-body .row').textContent !== was", arg=first)
    assert all(line == step + 1 for line, step in numbers(page))
    page.get_by_role("button", name="Start").click()
    wait_for_text(page, "0000000")
    expect(page.locator(".gutter").first).to_have_attribute("data-line", "1")
    page.get_by_role("button", name="End").click()
    wait_for_text(page, "0059999")
    product.print(numbered(60_000, 60_100))
    wait_for_text(page, "0060099")
    expect(page.locator(".gutter").last).to_have_attribute("data-line", "60100")
    assert all(line == step + 1 for line, step in numbers(page))
    # A run that begins again has lines of its own.
    product.run, product.sent = "r1", 0
    product.runs["r1"] = bytearray(b"step 0000000 again\n")
    product.head(at=0, restart=True, attempt=1, number=1, host="gpu-b")
    product.pour()
    wait_for_text(page, "again")
    expect(page.locator(".gutter").last).to_have_attribute("data-line", "1")


def test_times_have_four_formats_and_come_with_the_lines(page, viewer):
    page.emulate_media(color_scheme="light")
    product = viewer(numbered(0, 3), times=[(0, T), (LINE, T + 61.5), (2 * LINE, T + 3600)])
    wait_for_text(page, "0000002")
    choice = page.get_by_label("Time of each line")
    assert choice.input_value() == "local"
    choice.select_option("UTC")
    expect(page.locator(".gutter").last).to_have_attribute("data-time", "2023-11-14 23:13:20.000Z")
    assert shown_times(page)[1] == "2023-11-14 22:14:21.500Z"
    choice.select_option("Since the start")
    assert shown_times(page) == ["+00:00:00.000", "+00:01:01.500", "+01:00:00.000"]
    choice.select_option("Unix seconds")
    assert shown_times(page)[1] == f"{T + 61}.500"
    choice.select_option("Local time")
    local = page.evaluate("(at) => new Date(at * 1000).toTimeString().slice(0, 8)", T + 61)
    assert shown_times(page)[1] == f"{local}.500"
    # At the live end the socket says them, if they are shown.
    assert {"times": True} in product.messages
    product.socket.send(json.dumps({"run": "r0", "times": [[3 * LINE, T + 7200]]}))
    product.print(numbered(3, 4))
    wait_for_text(page, "0000003")
    choice.select_option("Since the start")
    assert shown_times(page)[-1] == "+02:00:00.000"
    choice.select_option("No times")
    assert product.messages[-1] == {"times": False}
    page.reload()
    wait_for_text(page, "0000003")
    assert choice.input_value() == "off"


@pytest.mark.parametrize("slow", [False, True], ids=["at once", "after the newest lines"])
def test_an_address_leads_to_a_line_and_to_a_range(page, site, slow):
    product = Product(page, numbered(0, 20_000))
    place = []
    if slow:
        page.route("**/log/lines?line=*", lambda route: place.append(route))
    page.goto(f"{site}?run=r0&lines=1201-1203")
    if slow:
        wait_for_text(page, "0019999")
        product.lines(place[0])
    wait_for_text(page, "0001200")
    picked = page.locator(".row.picked")
    expect(picked).to_have_count(3)
    assert [row.split()[1] for row in picked.all_inner_texts()] == ["0001200", "0001201", "0001202"]
    expect(picked.first).to_be_in_viewport()

    # A click on a number picks the line, with Shift a range; Esc picks none.
    def number(line):
        # Not by its place: rows above may come at any time.
        return page.locator(f"{ROWS} .gutter[data-line='{line}']")

    number(1203).click()
    assert asked(page) == {"run": "r0", "lines": "1203"}
    number(1206).click(modifiers=["Shift"])
    assert asked(page)["lines"] == "1203-1206"
    number(1202).click(modifiers=["Shift"])
    assert asked(page)["lines"] == "1202-1203"
    page.keyboard.press("Escape")
    expect(picked).to_have_count(0)
    assert "lines" not in asked(page)
    page.get_by_role("button", name="Copy link").click()
    # The row above, if it has been loaded, may peek in by a part of a pixel.
    assert asked(page)["lines"] in ("1200", "1201")


def test_the_time_that_one_goes_to_is_in_the_address(page, viewer):
    fetched = []
    page.on("request", lambda request: "at=" in request.url and fetched.append(request.url))
    viewer(numbered(0, 20_000), "?time=2023-11-14T22:13:20")
    field, follow = page.locator("[data-part=time]"), page.locator("[data-part=follow]")
    expect(follow).to_have_text("Follow")
    assert f"at={int(T)}&" in f"{fetched[0]}&"
    assert field.input_value().startswith("2023-11-14T22:13:20")
    wait_for_text(page, "0000000")
    field.fill("2023-11-14T22:14:21")
    page.wait_for_function(
        "() => new URLSearchParams(location.search).get('time') === '2023-11-14T22:14:21Z'"
    )
    assert f"at={int(T) + 61}&" in f"{fetched[-1]}&"
    follow.click()
    wait_for_text(page, "0019999")
    assert "time" not in asked(page)


SWITCH_TO_UTC = "import('/static/frame/times.js').then((times) => times.switchToUtc())"


@pytest.fixture
def page_in_new_york(chromium):
    """The browser is in New York; in Preferences the person has chosen Tokyo."""
    context = chromium.new_context(timezone_id="America/New_York")
    page = context.new_page()
    page.set_default_timeout(30_000)
    yield page
    context.close()


def test_all_times_of_a_log_are_in_the_zone_of_the_page(page_in_new_york):
    page = page_in_new_york
    hit = {"replica": "workerpool1-0", "run": "r1", "attempt": 1, "number": 0, "host": "gpu", "offset": 9}
    hit |= {"line": 0, "text": "loss", "match": "loss", "time": "2023-11-14T22:13:20.500000Z"}
    product = Product(page, numbered(0, 3))
    product.times = [[0, T]]
    found = {"hits": [hit], "searched": 9, "stored": 9}
    page.route("**/log/search?**", lambda route: route.fulfill(json=found))
    field, zone = page.locator("[data-part=time]"), page.locator("[data-part=zoneName]")
    # Addresses of earlier versions have no Z, and are in UTC as well.
    with served(viewer_page().replace("<html ", '<html data-zone="Asia/Tokyo" ')) as address:
        page.goto(f"{address}?time=2023-11-14T22:13:20&q=loss&in=all&times=local")
        wait_for_text(page, "0000002")
        expect(page.locator(".gutter").first).to_have_attribute("data-time", "07:13:20.000")
        expect(zone).to_have_text("GMT+9")
        assert field.input_value().startswith("2023-11-15T07:13:20")
        found = page.locator(".log-found li button .found-where")
        expect(found).to_have_text("workerpool1-0 07:13:20")
        assert "2023-11-15 07:13:20 GMT+9" in found.get_attribute("title")
        field.fill("2023-11-15T07:14:21")
        page.wait_for_function(
            "() => new URLSearchParams(location.search).get('time') === '2023-11-14T22:14:21Z'"
        )
        # Lines with their times in UTC, and a page that shows UTC.
        page.locator("[data-part=times]").select_option("utc")
        expect(zone).to_have_text("UTC")
        assert field.input_value().startswith("2023-11-14T22:14:21")
        expect(found).to_have_text("workerpool1-0 22:13:20")
        page.locator("[data-part=times]").select_option("local")
        expect(found).to_have_text("workerpool1-0 07:13:20")
        page.evaluate(SWITCH_TO_UTC)
        expect(page.locator(".gutter").first).to_have_attribute("data-time", "22:13:20.000")
        expect(found).to_have_text("workerpool1-0 22:13:20")
        expect(zone).to_have_text("UTC")


def test_a_typed_time_is_read_on_both_sides_of_a_change_of_the_clocks(page_in_new_york):
    page = page_in_new_york
    with served(viewer_page()) as address:
        page.goto(address)
        read = "([at]) => import('/static/frame/times.js').then((times) => times.momentOfField(at) / 1000)"
        # On 3 November 2024 at 6 h UTC, two o'clock became one o'clock.
        for typed, hour in (("2024-11-03T00:30", 4), ("2024-11-03T02:30", 7), ("2024-03-10T03:30", 7)):
            day = typed[:10]
            expected = datetime.fromisoformat(f"{day}T{hour:02d}:30:00+00:00").timestamp()
            assert page.evaluate(read, [typed]) == expected
        assert page.evaluate(
            "import('/static/frame/times.js').then((times) => isNaN(times.momentOfField('')))"
        )


@pytest.mark.parametrize(
    "query", ["?time=soon", "?lines=x", "?lines=0", "?lines=99999999999", "?q=&in=all", "?run=r0&lines=3-1"]
)
def test_a_strange_address_does_no_harm(page, viewer, query):
    viewer(numbered(0, 5), query)
    wait_for_text(page, "0000004")


def test_words_are_marked_and_counted_and_the_search_is_in_the_address(page, viewer):
    product = viewer(b"a needle and a Needle\nnothing\n\x1b[31mnee\x1b[0mdle\n", "?q=needle")
    wait_for_text(page, "nothing")
    page.get_by_text("3 in the loaded lines").wait_for()
    assert page.locator(".log-body mark").all_inner_texts() == ["needle", "Needle", "nee", "dle"]
    search = page.get_by_placeholder("Search the loaded lines")
    search.press("Enter")
    page.get_by_text("1 of 3 in the loaded lines").wait_for()
    search.press("Shift+Enter")
    page.get_by_text("3 of 3 in the loaded lines").wait_for()
    assert page.locator("mark.this").count() == 1
    search.fill("noth")
    page.wait_for_url(lambda url: "q=noth" in url)
    assert page.locator(".log-body mark").all_inner_texts() == ["noth"]
    product.print(b"")
    search.fill("")
    page.wait_for_url(lambda url: "q=" not in url)
    assert page.locator(".log-body mark").count() == 0


def test_an_expression_is_run_by_the_server_and_what_it_found_is_marked(page, viewer):
    data = b"step 1 loss 0.5\nstep x\nstep 22 loss 0.4\n"
    queries = []

    def search(route):
        queries.append(
            {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        )
        hits = [
            {"offset": 0, "line": 0, "text": "step 1 loss 0.5", "match": "step 1"},
            {"offset": 23, "line": 23, "text": "step 22 loss 0.4", "match": "step 22"},
        ]
        route.fulfill(json={"run": "r0", "hits": hits, "searchedTo": len(data), "stored": len(data)})

    viewer(data, "?q=step%20%5Cd%2B&regex=1&in=log", search=search)
    page.get_by_text("2 lines", exact=True).wait_for()
    assert queries == [{"q": r"step \d+", "regex": "1", "from": "0"}]
    expect(page.locator(".log-body mark")).to_have_text(["step 1", "step 22"])
    assert page.locator(".log-found mark").all_inner_texts() == ["step 1", "step 22"]
    assert asked(page) == {"q": r"step \d+", "regex": "1", "in": "log"}
    # Esc closes the list.
    page.locator(".log-found li button").first.focus()
    page.keyboard.press("Escape")
    assert page.locator(".log-found").is_hidden() and "in" not in asked(page)
    # As a text it is another search, which the browser makes.
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_text("0 in the loaded lines").wait_for()
    assert len(queries) == 1


def test_an_address_shows_its_whole_text_and_only_http(page, viewer):
    lines = [
        "see https://example.org/a?b=c&d=(e)#f, or (http://[::1]:8080/x).",
        "HTTP://UP.example/Path!",
        "javascript:alert(1) ftp://x.example data:text/html,x //y.example file:///etc/passwd",
        "https://good.example@evil.example/ http://user:pass@evil.example/ https://",
        'quoted "https://q.example/a" <https://r.example/b>',
        "https://r\u0430.example/ https://x.example/\u202egnp.exe",
        "\x1b]8;;https://evil.example\x1b\\https://shown.example\x1b]8;;\x1b\\",
        "\x1b[31mhttps://co\x1b[8;30;40mlour.example\x1b[0m/x end",
    ]
    viewer("\n".join(lines).encode() + b"\n")
    wait_for_text(page, "colour.example")
    links = page.locator(".log-body a")
    shown = links.evaluate_all(
        "(all) => all.map((a) => [a.textContent, a.getAttribute('href'), a.rel, a.target])"
    )
    assert all(text == href and "noopener" in rel and target == "_blank" for text, href, rel, target in shown)
    assert [href for _, href, _, _ in shown] == [
        "https://example.org/a?b=c&d=(e)#f",
        "http://[::1]:8080/x",
        "HTTP://UP.example/Path",
        "https://q.example/a",
        "https://r.example/b",
        "https://shown.example",
        "https://colour.example/x",
    ]
    # No colour of the program hides a part of an address.
    assert links.last.locator("*").count() == 0
    assert page.locator(ROWS).nth(2).inner_text() == lines[2]
    # What is found in an address is marked in it.
    page.get_by_placeholder("Search the loaded lines").fill("lour.ex")
    assert page.locator(".log-body a mark").all_inner_texts() == ["lour.ex"]


def test_wrap_keeps_the_end_while_following_and_else_the_first_line(page, viewer):
    data = b"".join(b"line %04d %s\n" % (n, b"word " * 60) for n in range(300))
    viewer(data)
    wait_for_text(page, "line 0299")
    body = page.locator(".log-body")
    left = "(node) => node.scrollHeight - node.clientHeight - node.scrollTop"
    for _ in range(2):
        page.get_by_role("button", name="Wrap").click()
        assert body.evaluate(left) < 2
        assert page.get_by_role("button", name="Pause").is_visible()
    page.get_by_role("button", name="Pause").click()
    first = """(node) => [...node.children].find(
        (row) => row.getBoundingClientRect().bottom > node.getBoundingClientRect().top + 1).textContent.slice(0, 9)"""
    body.evaluate("(node) => { node.scrollTop = node.scrollHeight / 2; }")
    before = body.evaluate(first)
    page.get_by_role("button", name="Wrap").click()
    assert body.evaluate(first) == before
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= 360")


def test_the_address_says_whether_lines_are_wrapped_and_which_times_they_have(page, viewer):
    viewer(b"first\n")
    wait_for_text(page, "first")
    page.get_by_role("button", name="Wrap").click()
    page.locator("[data-part=times]").select_option("utc")
    address = page.evaluate("location.href")
    page.evaluate("localStorage.clear()")
    page.goto(address)
    wait_for_text(page, "first")
    expect(page.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-part=times]")).to_have_value("utc")
    assert page.evaluate("localStorage.length") == 0
