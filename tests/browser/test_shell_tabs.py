"""Several shells on one page, two of them side by side; colleagues who watch; sizes. The address says what is shown."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.looks import in_each_look
from tests.browser.static_site import served, shell_page
from tests.harness.accessibility import assert_accessible
from tests.harness.browser import query_of

KEY = "0123456789abcdef" * 2


class Hosts:
    """All shells that the page opens. Each counts what was typed into it."""

    def __init__(self, page, slow=False, **answer):
        self.page, self.slow, self.answer = page, slow, answer
        self.typed, self.sizes, self.sockets = {}, {}, {}
        page.route_web_socket("**/ws/shells/**", self.connected)

    def connected(self, socket):
        key = urlsplit(socket.url).path.rsplit("/", 1)[1]
        self.sockets[key] = socket
        self.typed.setdefault(key, b"")
        socket.on_message(lambda message: self.heard(key, socket, message))

    def heard(self, key, socket, message):
        if isinstance(message, bytes):
            self.typed[key] += message
            socket.send(json.dumps({"took": len(self.typed[key])}))
            return
        told = json.loads(message)
        if "resize" in told:
            self.sizes.setdefault(key, []).append(told["resize"])
        if "client" in told and not self.slow:
            self.make_ready(key)

    def make_ready(self, key, **more):
        ready = {"at": 0, "end": 0, "lost": False, "modes": "", "taken": len(self.typed[key])}
        self.sockets[key].send(json.dumps({"ready": {**ready, **self.answer, **more}}))

    def until(self, true):
        for _ in range(400):
            if true():
                return
            self.page.wait_for_timeout(25)
        raise AssertionError((self.typed, self.sizes))

    def runs(self):
        return [parse_qs(urlsplit(socket.url).query)["run"][0] for socket in self.sockets.values()]


@pytest.fixture(scope="module")
def site():
    with served(shell_page(), inline_styles=True) as address:
        yield address


@pytest.fixture(scope="module")
def site_of_a_watcher():
    with served(shell_page(may_type=False, runs=()), inline_styles=True) as address:
        yield address


def visible_panes(page):
    return page.locator(".shell-pane:visible")


def test_several_tabs_and_a_split_are_in_the_address_and_come_back(page, site):
    hosts = Hosts(page)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_text("Connected").wait_for()
    assert not page.get_by_role("tablist").is_visible()
    page.get_by_label("Replica of the next shell").select_option("workerpool1-0")
    page.get_by_role("button", name="New tab").click()
    hosts.until(lambda: len(hosts.sockets) == 2)
    assert hosts.runs() == ["r0", "r1"]
    assert page.get_by_role("tab").all_inner_texts() == ["workerpool0-0", "workerpool1-0"]
    page.keyboard.type("second")
    second = next(key for key in hosts.typed if key != KEY)
    hosts.until(lambda: hosts.typed[second] == b"second")
    page.get_by_role("tab", name="workerpool0-0").click()
    page.keyboard.type("first")
    hosts.until(lambda: hosts.typed[KEY] == b"first")
    wide = hosts.sizes[KEY][-1][0]
    page.get_by_role("button", name="Split").click()
    assert visible_panes(page).count() == 2
    hosts.until(lambda: hosts.sizes[KEY][-1][0] < wide * 0.6)
    query = query_of(page)
    assert query["shell"] == [KEY] and query["split"] == [second]
    page.reload()
    hosts.until(lambda: page.get_by_text("Connected").count() == 2)
    assert visible_panes(page).count() == 2 and set(hosts.typed) == {KEY, second}
    page.get_by_role("tabpanel", name="workerpool1-0").get_by_role("button", name="Leave tab").click()
    assert visible_panes(page).count() == 1
    assert query_of(page) == {"shell": [KEY]}
    page.keyboard.type("!")
    hosts.until(lambda: hosts.typed[KEY] == b"first!")


def test_arrows_choose_a_tab(page, site):
    hosts = Hosts(page)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_role("button", name="New tab").click()
    hosts.until(lambda: len(hosts.sockets) == 2)
    page.get_by_role("tab", selected=True).focus()
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("tab", selected=True).inner_text() == "workerpool0-0"


def test_a_person_who_only_watches_types_nothing_and_reads_why(page, site_of_a_watcher):
    hosts = Hosts(page, types=False, size=[120, 20])
    page.goto(f"{site_of_a_watcher}?shell={KEY}&watch")
    page.get_by_text("Connected").wait_for()
    assert page.get_by_text("Keys do nothing here: whoever submitted the job").is_visible()
    page.locator("textarea").focus()
    page.keyboard.type("rm -rf /\n")
    page.wait_for_timeout(200)
    assert hosts.typed[KEY] == b""
    assert not page.get_by_role("button", name="End shell").is_visible()
    assert not page.get_by_role("button", name="Type too").is_visible()
    assert not page.get_by_role("button", name="New tab").is_visible()
    assert page.locator(".xterm-rows > div").count() == 20, "the size is that of the person who types"


def test_whoever_may_type_can_take_part(page, site):
    hosts = Hosts(page, types=False, size=[80, 24])
    page.goto(f"{site}?shell={KEY}&watch")
    page.get_by_text("Keys do nothing here.").wait_for()
    assert hosts.sockets[KEY].url.endswith("&watch=1")
    hosts.answer = {"types": True}
    page.get_by_role("button", name="Type too").click()
    hosts.until(lambda: not hosts.sockets[KEY].url.endswith("&watch=1"))
    page.get_by_text("Connected").wait_for()
    page.keyboard.type("ls")
    hosts.until(lambda: hosts.typed[KEY] == b"ls")
    assert "watch" not in query_of(page)


def test_the_size_is_that_of_whoever_typed_last(page, site):
    hosts = Hosts(page, types=True)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_text("Connected").wait_for()
    own = hosts.sizes[KEY][-1]
    hosts.sockets[KEY].send(json.dumps({"size": [60, 10]}))
    hosts.until(lambda: page.locator(".xterm-rows > div").count() == 10)
    assert hosts.sizes[KEY][-1] == own, "to obey is no new size"
    page.keyboard.type("x")
    hosts.until(lambda: page.locator(".xterm-rows > div").count() == own[1])
    hosts.until(lambda: len(hosts.sizes[KEY]) > 1)
    cols, rows = hosts.sizes[KEY][-1]
    # A cell is a part of a pixel wider or narrower where there are other numbers of them.
    assert rows == own[1] and abs(cols - own[0]) <= 1


def test_a_place_that_changes_while_the_shell_opens_is_filled(page, site):
    """On a phone the lines above the terminal wrap while it opens."""
    hosts = Hosts(page, slow=True, types=True)
    page.goto(f"{site}?shell={KEY}")
    hosts.until(lambda: KEY in hosts.sizes)
    first = hosts.sizes[KEY][-1]
    page.set_viewport_size({"width": 900, "height": 600})
    hosts.until(lambda: 0 < page.locator(".xterm-rows > div").count() < first[1])
    assert hosts.sizes[KEY] == [first], "nobody is there yet to be told"
    hosts.make_ready(KEY, size=first)
    hosts.until(lambda: len(hosts.sizes[KEY]) > 1)
    assert hosts.sizes[KEY][-1][1] == page.locator(".xterm-rows > div").count() < first[1]
    assert page.locator("[data-part=screen]").get_attribute("data-size") == "own"


def test_a_terminal_below_a_note_is_in_sight_when_it_opens(page, site):
    """On a phone a note fills the screen. What is out of sight is not drawn, but keys would go there."""
    page.set_viewport_size({"width": 360, "height": 740})
    add = """() => {
      const note = document.createElement("div");
      note.style.height = "600px";
      document.querySelector("main").prepend(note);
    }"""
    hosts = Hosts(page, slow=True, types=True)
    page.goto(f"{site}?shell={KEY}")
    hosts.until(lambda: KEY in hosts.sizes)
    page.evaluate(add)
    expect(page.locator(".shell-screen")).not_to_be_in_viewport()
    hosts.make_ready(KEY)
    hosts.sockets[KEY].send(b"gpu@gpu01:~$ ")
    expect(page.locator(".shell-screen")).to_be_in_viewport(ratio=0.9)
    expect(page.locator(".xterm-rows")).to_contain_text("gpu@gpu01:~$")


def test_a_late_answer_of_the_host_is_no_size_of_somebody_else(page, site):
    """While a window is pulled larger, the host confirms sizes that the page has left again."""
    hosts = Hosts(page, types=True)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_text("Connected").wait_for()
    page.set_viewport_size({"width": 900, "height": 600})
    hosts.until(lambda: len(hosts.sizes[KEY]) > 1)
    for size in (hosts.sizes[KEY][0], hosts.sizes[KEY][-1]):
        hosts.sockets[KEY].send(json.dumps({"size": size}))
    hosts.until(lambda: page.locator(".xterm-rows > div").count() == hosts.sizes[KEY][-1][1])
    told = len(hosts.sizes[KEY])
    page.set_viewport_size({"width": 900, "height": 500})
    hosts.until(lambda: len(hosts.sizes[KEY]) > told)
    assert page.locator("[data-part=screen]").get_attribute("data-size") == "own"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1279, 733), (360, 740), (640, 400)])
def test_the_last_row_is_whole_at_every_size(page, site, width, height):
    """The last size is a window of 1280 × 800 at 200 %."""
    page.set_viewport_size({"width": width, "height": height})
    Hosts(page)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_text("Connected").wait_for()
    last = page.locator(".xterm-rows > div").last.bounding_box()
    screen = page.locator(".shell-screen").bounding_box()
    assert last["y"] + last["height"] <= screen["y"] + screen["height"] - 8
    assert page.locator(".xterm-rows > div").count() >= (20 if width > 1000 else 5)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@in_each_look
def test_pages_of_shells_pass_axe(page, site, width, theme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    hosts = Hosts(page)
    page.goto(f"{site}?shell={KEY}")
    page.get_by_role("button", name="New tab").click()
    page.get_by_role("button", name="Split").click()
    hosts.until(lambda: page.get_by_text("Connected").count() == 2)
    page.keyboard.press("Control+Shift+F")
    page.get_by_label("Search in the output").last.fill("nothing of this")
    assert_accessible(page)
