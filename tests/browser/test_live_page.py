"""Live fragments replace parts of an open page, and keep what the person does there."""

from __future__ import annotations

import json

import pytest

from tests.browser.static_site import page_of, served


def fragment(number, extra=""):
    return (
        f'<div id="job-live" data-live="/ws/jobs/1"><p id="number">version {number}</p>'
        f"<details><summary>More</summary><p>inside {number}</p></details>"
        f'<input id="name"><button>go</button>{extra}</div>'
    )


@pytest.fixture(scope="module")
def site():
    content = '<span id="link-dot"></span>' + fragment(0) + '<input id="outside"><div id="story">once</div>'
    with served(page_of("Live", [], "live.js", content)) as address:
        yield address


@pytest.fixture
def sockets(page, site):
    opened = []
    page.route_web_socket("**/ws/jobs/1", lambda socket: opened.append(socket))
    page.goto(site)
    page.get_by_text("Live", exact=True).wait_for()
    return opened


def send(sockets, number, extra=""):
    sockets[-1].send(json.dumps({"stamp": str(number), "html": fragment(number, extra)}))


def test_an_update_keeps_focus_open_parts_and_typed_text(page, sockets):
    page.locator("summary").click()
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


def test_one_update_changes_separate_parts_of_the_page(page, sockets):
    page.locator("#outside").fill("typed between them")
    html = fragment(1) + '<div id="story">upon a time</div><div id="nowhere">not on this page</div>'
    sockets[-1].send(json.dumps({"stamp": "1", "html": html}))
    page.get_by_text("upon a time").wait_for()
    assert page.get_by_text("version 1").is_visible() and page.locator("#nowhere").count() == 0
    assert page.locator("#outside").input_value() == "typed between them"


def test_scripts_in_a_fragment_do_not_run(page, sockets):
    send(sockets, 1, "<script>window.bad = 1</script><img src=x onerror='window.bad = 1'>")
    page.get_by_text("version 1").wait_for()
    page.wait_for_timeout(100)
    assert page.evaluate("window.bad") is None


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
