"""Live fragments replace parts of an open page, and keep what the person does there."""

from __future__ import annotations

import json
import re
import time

import pytest
from django.template.loader import render_to_string
from playwright.sync_api import expect

from tests.browser.static_site import page_of, served

LIBRARIES = ("npm/htmx/htmx.min.js", "npm/htmx-ws/ws.min.js", "npm/idiomorph/idiomorph-ext.min.js")


def fragment(number, extra=""):
    return (
        f'<div id="job-live"><p id="number">version {number}</p>'
        f"<details><summary>More</summary><p>inside {number}</p></details>"
        f'<input id="name"><select id="kind"><option value="">all<option value="one">one</select>'
        f'<input type="checkbox" id="box"><button>go</button>{extra}</div>'
    )


def part(words, ago="1 h ago"):
    return (
        f'<div id="kept" class="live-part"><p id="words">{words}</p>'
        f'<time data-ago="2026-01-01T00:00:00Z">{ago}</time></div>'
    )


@pytest.fixture(scope="module")
def site():
    content = (
        '<span id="link-dot"></span><div id="live" hidden hx-ext="ws,live" ws-connect="/ws/live?at=%2F"></div>'
        f'<div hx-ext="morph">{fragment(0)}{part("served")}<input id="outside"><div id="story">once</div></div>'
    )
    html = page_of("Live", [], "live.js", content)
    scripts = "".join(f'<script src="/static/{name}" defer></script>' for name in LIBRARIES)
    scripts += '<script type="module" src="/static/page.js"></script>'
    settings = re.search(r"<meta name=.htmx-config.*?>", render_to_string("parts/htmx.html"), re.DOTALL)[0]
    with served(html.replace("<script", f"{settings}{scripts}<script", 1)) as address:
        yield address


@pytest.fixture
def sockets(page, site):
    opened = []
    page.route_web_socket("**/ws/live?at=%2F", lambda socket: opened.append(socket))

    def heard(said):
        if said.type == "error" and "Failed to load resource" not in said.text:
            page.problems.append(said.text)

    page.on("console", heard)
    page.goto(site)
    page.get_by_text("Live", exact=True).wait_for()
    return opened


def send(sockets, number, extra=""):
    sockets[-1].send(fragment(number, extra))


def test_a_page_that_does_not_change_by_itself_is_connected_but_not_live(page, site):
    opened = []
    page.route_web_socket("**/ws/live?at=%2F", lambda socket: opened.append(socket))
    page.add_init_script(
        "addEventListener('readystatechange', () => {"
        " document.getElementById('link-dot').dataset.still = '2026-11-22T12:01:05.000Z'; }, true)"
    )
    page.goto(site)
    dot = page.locator("#link-dot")
    expect(dot).to_have_text("Connected")
    assert dot.get_attribute("data-state") == "live"
    assert (
        dot.get_attribute("title") == "This page shows what was there at 12:01:05. Reload it for the newest."
    )
    # Without contact it says so as any page.
    page.route_web_socket("**/ws/live?at=%2F", lambda socket: socket.close(code=4403, reason="Log in again."))
    opened[-1].close(code=1012)
    expect(dot).to_have_text("Log in again.")
    assert dot.get_attribute("title") is None


def test_an_update_keeps_focus_open_parts_and_typed_text(page, sockets):
    page.locator("summary").click()
    page.locator("#kind").select_option("one")
    page.locator("#box").check()
    page.locator("#name").fill("half a na")
    send(sockets, 1, '<p id="new">one more</p>')
    page.get_by_text("version 1").wait_for()
    assert page.locator("#new").inner_text() == "one more" and page.get_by_text("inside 1").is_visible()
    assert page.evaluate("document.activeElement.id") == "name"
    page.keyboard.type("me")
    assert page.locator("#name").input_value() == "half a name"
    send(sockets, 2)
    page.get_by_text("version 2").wait_for()
    assert page.locator("#new").count() == 0 and page.get_by_text("inside 2").is_visible()
    # A choice stays too, without the focus.
    assert page.locator("#kind").input_value() == "one" and page.locator("#box").is_checked()


def test_one_update_changes_separate_parts_of_the_page(page, sockets):
    page.locator("#outside").fill("typed between them")
    html = fragment(1) + '<div id="story">upon a time</div><div id="nowhere">not on this page</div>'
    sockets[-1].send(html)
    page.get_by_text("upon a time").wait_for()
    assert page.get_by_text("version 1").is_visible() and page.locator("#nowhere").count() == 0
    assert page.locator("#outside").input_value() == "typed between them"


def by_script(page):
    page.evaluate("document.getElementById('words').textContent = 'by a script'")


def words(page, sockets, number):
    """What the part says, after another part has been shown."""
    send(sockets, number)
    page.get_by_text(f"version {number}").wait_for()
    return page.locator("#words").inner_text()


def test_a_part_that_the_page_came_with_is_left_alone_when_the_socket_brings_it_again(page, sockets):
    """Most sockets begin with it. Words of times are written by the page, so they make no difference."""
    by_script(page)
    sockets[-1].send(part("served", "2 h ago"))
    assert words(page, sockets, 1) == "by a script"
    # Only the first: what the page shows may be another thing by then.
    sockets[-1].send(part("served"))
    assert words(page, sockets, 2) == "served"
    sockets[-1].send(part("other"))
    assert words(page, sockets, 3) == "other"


def test_a_part_that_differs_or_that_a_person_has_exchanged_is_replaced(page, sockets):
    sockets[-1].send(part("changed since"))
    assert words(page, sockets, 1) == "changed since"
    page.reload()
    page.get_by_text("Live", exact=True).wait_for()
    by_script(page)
    page.evaluate(
        "document.body.dispatchEvent(new CustomEvent('htmx:beforeSwap', { bubbles: true, detail: {} }))"
    )
    sockets[-1].send(part("served"))
    assert words(page, sockets, 2) == "served"


def test_scripts_in_a_fragment_do_not_run(page, sockets):
    send(sockets, 1, "<script>window.bad = 1</script><img src=x onerror='window.bad = 1'>")
    page.get_by_text("version 1").wait_for()
    page.wait_for_timeout(100)
    assert page.evaluate("window.bad") is None
    # The browser says what the policy refused.
    assert all("Content Security Policy" in text for text in page.problems)
    page.problems.clear()


def test_the_page_shows_when_it_is_not_live_and_reconnects(page, sockets):
    send(sockets, 1)
    page.get_by_text("version 1").wait_for()
    sockets[-1].close(code=1012)
    for _ in range(600):
        if len(sockets) == 2:
            break
        page.wait_for_timeout(50)
    page.get_by_text("Live", exact=True).wait_for()
    send(sockets, 2)
    page.get_by_text("version 2").wait_for()
    sockets[-1].close(code=4403, reason="You are logged out.")
    page.get_by_text("You are logged out.").wait_for()
    page.wait_for_timeout(800)
    assert len(sockets) == 2


def say_beat(sockets):
    sockets[-1].send(json.dumps({"beat": time.time()}))


def test_a_link_that_brings_a_part_is_known_to_htmx(page, sockets):
    """New links of a part exchange fragments, as those that the page came with."""
    send(sockets, 1, '<a id="link" href="/elsewhere" hx-boost="true">elsewhere</a>')
    page.locator("#link").wait_for()
    asked = []
    page.route(
        "**/elsewhere", lambda route: (asked.append(route.request.headers), route.fulfill(body="<p>x</p>"))
    )
    page.locator("#link").click()
    page.wait_for_timeout(50)
    wait_for(page, lambda: asked)
    assert asked[0]["hx-request"] == "true"


def test_silence_makes_the_page_stale_and_clocks_stand_still(page, sockets):
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    send(sockets, 1, f'<span id="clock" data-since="{since}">?</span>')
    say_beat(sockets)
    page.get_by_text("version 1").wait_for()
    wait_for(page, lambda: "s" in page.locator("#clock").inner_text())
    cut = [True]
    page.route("**/", lambda route: route.abort() if cut else route.continue_())
    page.get_by_text("No contact since").wait_for()
    stood = page.locator("#clock").inner_text()
    page.wait_for_timeout(2500)
    assert page.locator("#clock").inner_text() == stood
    assert len(sockets) == 1, "a path that is cut is not dialled"
    cut.clear()
    wait_for(page, lambda: len(sockets) >= 2)
    say_beat(sockets)
    page.get_by_text("Live", exact=True).wait_for()
    assert page.evaluate("document.documentElement.dataset.stale") is None
    wait_for(page, lambda: page.locator("#clock").inner_text() != stood)


def test_a_server_without_beats_may_be_silent(page, sockets):
    """Another machine of the deployment may still run the version before."""
    page.evaluate(
        "() => { const real = performance.now.bind(performance); performance.now = () => real() + 60000; }"
    )
    page.wait_for_timeout(1500)
    assert page.locator("#link-dot").inner_text() == "Live" and len(sockets) == 1


def test_a_server_that_refuses_says_why_and_is_not_hammered(page, site):
    """A limit was reached: the server opens the socket and closes it with the reason."""
    opened, full = [], [True]

    def connected(socket):
        opened.append(socket)
        if full:
            socket.close(code=1013, reason="Too many pages are open.")

    page.route_web_socket("**/ws/live?at=%2F", connected)
    page.goto(site)
    page.get_by_text("Too many pages are open.").wait_for()
    page.wait_for_timeout(5000)
    # The pauses grow: 0.3, 0.6, 1.2, 2.4 s, each up to a third shorter or longer.
    assert 2 <= len(opened) <= 6
    assert page.locator("#link-dot").inner_text() == "Too many pages are open."
    full.clear()
    before = len(opened)
    wait_for(page, lambda: len(opened) > before)
    say_beat(opened)
    page.get_by_text("Live", exact=True).wait_for()


def test_a_hidden_page_is_right_when_it_is_shown_again(page, sockets):
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.away })")
    page.evaluate("window.away = true")
    for number in range(1, 4):
        send(sockets, number)
    sockets[-1].send('<div id="story">upon a time</div>')
    page.wait_for_timeout(300)
    assert page.locator("#number").inner_text() == "version 0"
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("version 3").wait_for()
    page.get_by_text("upon a time").wait_for()


# What the page keeps while it is hidden is written out as text.
KEEPS = """() => {
  const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "outerHTML");
  window.kept = "";
  Object.defineProperty(Element.prototype, "outerHTML", { get() { return (window.kept = get.call(this)); } });
}"""


def test_a_part_that_comes_whole_after_its_pieces_is_right_when_a_hidden_page_is_shown(page, sockets):
    """Also where it is what the page came with: the page was loaded in the background, and the socket opened twice."""
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.away })")
    page.evaluate("window.away = true")
    page.evaluate(KEEPS)
    sockets[-1].send(part("served"))
    sockets[-1].send('<p id="words">a piece</p>')
    sockets[-1].send(part("served"))
    sockets[-1].send('<div id="story">upon a time</div>')
    wait_for(page, lambda: "upon a time" in page.evaluate("window.kept"))
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("upon a time").wait_for()
    assert page.locator("#words").inner_text() == "served"


def wait_for(page, true):
    for _ in range(600):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("still not so after 30 s")
