"""The terminal page in a real browser: the same shell after a lost connection and a reload, each byte once."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.static_site import served, shell_page


class Host:
    """The server and the host: they hold one shell, and count as the host does. Sockets come and go."""

    def __init__(self, page, slow=False):
        self.page, self.slow = page, slow
        self.typed, self.taken, self.output = b"", {}, b""
        self.told, self.sockets, self.addresses = [], [], []
        self.acknowledges, self.at, self.client = True, {}, None
        self.answer = {}
        page.route_web_socket("**/ws/shells/**", self.connected)

    def connected(self, socket):
        self.sockets.append(socket)
        self.addresses.append(socket.url)
        self.client = None
        socket.on_message(lambda message: self.heard(socket, message))
        socket.send(json.dumps({"opening": "train@gpu-a"}))
        for hello in parse_qs(urlsplit(socket.url).query).get("hello", []):
            self.heard(socket, hello)

    def heard(self, socket, message):
        if isinstance(message, bytes):
            # Of what a socket brings, the offset is known from its beginning; what was taken before is dropped.
            begin, self.at[socket] = self.at[socket], self.at[socket] + len(message)
            taken = self.taken[self.client]
            assert begin <= taken, "typed bytes are missing"
            fresh = message[taken - begin :]
            self.typed += fresh
            self.taken[self.client] += len(fresh)
            if self.acknowledges:
                self.tell(took=self.taken[self.client])
            return
        told = json.loads(message)
        self.told.append(told)
        if "client" in told and not self.slow:
            self.make_ready(socket, told)

    def make_ready(self, socket=None, hello=None, **more):
        socket = socket or self.sockets[-1]
        hello = hello or next(told for told in reversed(self.told) if "client" in told)
        self.client = hello["client"]
        taken = self.taken.setdefault(self.client, 0)
        self.at[socket] = taken
        begin = hello["from"] or 0
        ready = {"at": begin, "end": len(self.output), "lost": False, "modes": "", "taken": taken}
        socket.send(json.dumps({"ready": {**ready, **self.answer, **more}}))
        if self.output[begin:]:
            socket.send(self.output[begin:])

    def tell(self, **message):
        self.sockets[-1].send(json.dumps(message))

    def print(self, data):
        self.output += data
        self.sockets[-1].send(data)

    def cut(self, code=1013):
        self.sockets[-1].close(code=code, reason="cut by the test")

    def until(self, true):
        for _ in range(600):
            if true():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError((self.told[-3:], len(self.typed)))


@pytest.fixture(scope="module")
def site():
    with served(shell_page(), inline_styles=True) as address:
        yield address


@pytest.fixture
def host(page, site):
    host = Host(page)
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    return host


def screen(page):
    return page.locator(".xterm-rows").inner_text().replace("\xa0", " ")


def paste(page, text):
    page.locator("textarea").evaluate(
        """(area, text) => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          area.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }""",
        text,
    )


def test_the_terminal_sends_input_shows_output_and_resizes(page, host):
    (size,) = [told["resize"] for told in host.told[:1]]
    assert size[0] > 60 and size[1] > 10
    page.keyboard.type("ls é\n")
    host.until(lambda: host.typed == "ls é\r".encode())
    page.keyboard.press("Control+c")
    host.until(lambda: host.typed.endswith(b"\x03"))
    host.print("héllo \x1b[31mred\x1b[0m\r\n$ ".encode())
    host.until(lambda: "héllo red" in screen(page))
    page.set_viewport_size({"width": 700, "height": 500})
    host.until(lambda: host.told[-1].get("resize", size)[0] < size[0])


def focused(page):
    return page.evaluate(
        "document.activeElement.dataset.part || document.activeElement.dataset.page || document.activeElement.className"
    )


def test_the_keyboard_alone_can_leave_the_terminal(page, host):
    """Tab goes to the program; another key, which the page names, leaves the terminal and types nothing."""
    page.keyboard.press("Tab")
    host.until(lambda: host.typed == b"\t")
    assert focused(page) == "xterm-helper-textarea"
    assert "Shift+F6 leaves the terminal" in page.locator(".shell").inner_text()
    page.keyboard.press("Shift+F6")
    assert focused(page) == "leave" and host.typed == b"\t"
    page.locator("textarea").focus()
    host.cut(4403)
    page.get_by_role("button", name="Open again").wait_for()
    page.keyboard.press("Shift+Tab")
    assert focused(page) == "again", "a terminal that is over takes no Tab"


def test_input_during_connecting_is_not_lost(page, site):
    host = Host(page, slow=True)
    page.goto(site)
    page.get_by_text("Opening a shell as train@gpu-a").wait_for()
    page.keyboard.type("make test")
    host.until(lambda: any("resize" in told for told in host.told))
    assert host.typed == b""
    page.get_by_text("9 typed bytes wait.").wait_for()
    host.make_ready()
    page.get_by_text("Connected").wait_for()
    page.keyboard.type("\n")
    host.until(lambda: host.typed == b"make test\r")
    assert not page.get_by_text("typed bytes wait").is_visible()


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_socket_is_there_before_the_terminal(page, site, is_cut):
    """It has one owner, and says nothing before. If it has ended meanwhile, the page opens another one."""
    host, scripts = Host(page), []
    page.route("**/xterm.mjs", lambda route: scripts.append(route))
    page.goto(f"{site}?shell={'0123456789abcdef' * 2}", wait_until="commit")
    host.until(lambda: host.sockets and scripts)
    assert host.told == []
    if is_cut:
        host.cut()
    scripts[0].continue_()
    page.get_by_text("Connected").wait_for()
    assert (
        len(host.sockets) == 1 + is_cut and [told for told in host.told if "client" in told] == host.told[:1]
    )
    assert len(set(host.addresses)) == 1
    page.keyboard.type("x")
    host.until(lambda: host.typed == b"x")


def test_after_a_reload_the_screen_comes_while_the_terminal_loads(page, site):
    """It is asked for in the size that the page had, so that no program draws again. If the page has another size
    meanwhile, the host is told."""
    host, scripts = Host(page), []
    host.answer = {"recording": True}
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    host.until(lambda: len(host.told) > 1)  # the note of the recording took a row
    size = host.answer["size"] = host.told[-1]["resize"]
    host.print(b"seen before\r\n$ ")
    host.until(lambda: "seen before" in screen(page))
    page.route("**/xterm.mjs", lambda route: scripts.append(route))
    host.told.clear()
    page.reload(wait_until="commit")
    host.until(lambda: host.told and scripts)
    scripts.pop().continue_()
    page.get_by_text("Connected").wait_for()
    host.until(lambda: "seen before" in screen(page))
    page.keyboard.type("x")
    host.until(lambda: host.typed == b"x")
    [client] = host.taken
    assert host.told == [{"resize": size, "client": client, "from": None}] and screen(page).count("seen") == 1
    page.reload(wait_until="commit")
    host.until(lambda: len(host.told) == 2 and scripts)
    page.set_viewport_size({"width": 700, "height": 500})
    scripts.pop().continue_()
    page.get_by_text("Connected").wait_for()
    host.until(lambda: host.told[-1]["resize"][0] < size[0])
    assert len(host.taken) == 1, "the same client"


# The socket whose address has the first message stays on its way, until the test lets it fail.
FAILS_EARLY = """
const Known = window.WebSocket;
window.WebSocket = function (url) {
  if (!String(url).includes("hello=")) return new Known(url);
  return (window.early = { readyState: Known.CONNECTING, close() {} });
};
for (const name of ["CONNECTING", "OPEN", "CLOSING", "CLOSED"]) window.WebSocket[name] = Known[name];
"""


def test_a_socket_after_a_failed_early_one_is_told_who_asks(page, site):
    host = Host(page)
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    client = host.client
    page.add_init_script(FAILS_EARLY)
    page.reload()
    page.get_by_text("Connecting…").wait_for()
    host.told.clear()
    page.evaluate('early.readyState = 3; early.onclose({ code: 1006, reason: "" })')
    page.get_by_text("Connected").wait_for()
    assert host.told[0]["client"] == client and "hello=" not in host.addresses[-1]


def test_output_is_acknowledged_when_it_is_on_the_screen(page, host):
    block = b"x" * 78 + b"\r\n"
    for _ in range(20):
        host.print(block * 100)
    host.until(lambda: any(told.get("ack", 0) >= 160_000 - 32_768 for told in host.told))
    assert max(told["ack"] for told in host.told if "ack" in told) <= 160_000


def test_a_large_paste_waits_for_acknowledgements_and_arrives_complete(page, host):
    host.acknowledges = False
    text = "".join(f"line {n}\n" for n in range(60_000))
    paste(page, text)
    page.get_by_role("button", name="Paste").click()
    host.until(lambda: len(host.typed) >= 192 * 1024)
    page.wait_for_timeout(200)
    # It waits for us now; the rest comes as we take it.
    assert len(host.typed) < 256 * 1024
    while len(host.typed) < len(text):
        before = len(host.typed)
        host.tell(took=before)
        host.until(lambda before=before: len(host.typed) > before)
    assert host.typed == text.replace("\n", "\r").encode()


def test_a_lost_connection_goes_on_at_the_same_byte(page, host):
    host.print(b"one\r\n")
    host.until(lambda: "one" in screen(page))
    page.keyboard.type("abc")
    host.until(lambda: host.typed == b"abc")
    host.cut()
    page.get_by_text("Reconnecting").wait_for()
    host.output += b"two\r\n"
    page.get_by_text("Connected").wait_for()
    host.until(lambda: "two" in screen(page))
    assert screen(page).count("one") == screen(page).count("two") == 1
    assert [told["from"] for told in host.told if "from" in told] == [None, 5]
    assert len({address.partition("?")[0] for address in host.addresses}) == 1, "the same shell"
    page.keyboard.type("def")
    host.until(lambda: host.typed == b"abcdef")


def test_what_was_sent_and_not_taken_is_sent_again_and_typed_once(page, host):
    host.acknowledges = False
    page.keyboard.type("first\n")
    host.until(lambda: host.typed == b"first\r")
    host.cut()
    page.get_by_text("Connected").wait_for()
    page.keyboard.type("second\n")
    host.until(lambda: host.typed == b"first\rsecond\r")


def test_lines_that_were_typed_without_a_connection_wait_for_the_person(page, host):
    host.slow = True
    host.cut()
    page.get_by_text("Reconnecting").wait_for()
    page.keyboard.type("rm -rf x\n")
    page.get_by_text("9 typed bytes wait.").wait_for()
    host.until(lambda: len(host.sockets) == 2 and sum("client" in told for told in host.told) == 2)
    host.slow = False
    host.make_ready()
    page.get_by_role("button", name="Forget").click()
    page.keyboard.type("ls")
    host.until(lambda: host.typed == b"ls")
    host.slow = True
    host.cut()
    page.get_by_text("Reconnecting").wait_for()
    page.keyboard.type("make\n")
    host.until(lambda: len(host.sockets) == 3 and sum("client" in told for told in host.told) == 3)
    host.make_ready()
    page.get_by_role("button", name="Send").click()
    host.until(lambda: host.typed == b"lsmake\r")


def test_after_a_reload_it_is_the_same_shell_with_its_screen(page, host):
    host.print(b"seen before\r\n$ ")
    host.acknowledges = False
    page.keyboard.type("half a comm")
    host.until(lambda: host.typed == b"half a comm")
    page.reload()
    page.get_by_text("Connected").wait_for()
    host.until(lambda: "seen before" in screen(page))
    page.keyboard.type("and")
    host.until(lambda: host.typed == b"half a command")
    assert len({address.partition("?")[0] for address in host.addresses}) == 1
    assert len(host.taken) == 1, "the same client"


def test_the_copy_of_a_tab_is_a_client_of_its_own(page, host, site):
    page.reload()
    page.get_by_text("Connected").wait_for()
    before = dict(page.evaluate("({...sessionStorage})"))
    assert before == {}, "nothing is left for a copy"


def test_questions_in_old_output_are_not_answered_again(page, host):
    """`vim` asks the terminal for its kind, its colours and the place of the cursor."""
    questions = b"\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b]11;?\x07\x1bP$qm\x1b\\\x1b[?2004$p\x1b[>q"
    host.print(questions)
    host.until(lambda: host.typed.count(b"\x1b") >= 4)
    page.wait_for_timeout(200)
    host.typed = answers = host.typed
    page.reload()
    page.get_by_text("Connected").wait_for()
    host.print(b"new\r\n")
    host.until(lambda: "new" in screen(page))
    page.wait_for_timeout(200)
    assert host.typed == answers
    host.print(b"\x1b[6n")
    host.until(lambda: len(host.typed) > len(answers))


def test_output_that_is_lost_is_said(page, host):
    host.print(b"old\r\n")
    host.until(lambda: "old" in screen(page))
    host.output = b"x" * 1000
    host.tell(lost=1000, modes="\x1b[?2004h")
    host.print(b"newest\r\n")
    host.until(lambda: "newest" in screen(page))
    assert "A part is left out" in screen(page) and "old" not in screen(page)


def test_everybody_who_is_there_is_shown(page, host):
    host.tell(viewers=[{"name": "bob", "types": True}, {"name": "<b>vera</b>", "types": False}])
    page.get_by_text("Here now: bob (types), <b>vera</b> (watches)").wait_for()
    host.tell(viewers=[{"name": "bob", "types": True}])
    host.until(lambda: not page.get_by_text("Here now").is_visible())


def test_a_closed_shell_shows_the_reason_and_a_new_one_can_be_opened(page, host):
    again = page.get_by_role("button", name="Open again")
    assert not again.is_visible()
    host.tell(closed="The replica is not running.")
    host.cut(4403)
    page.get_by_text("The replica is not running.").wait_for()
    page.keyboard.type("lost")
    host.output = b""
    again.click()
    page.get_by_text("Connected").wait_for()
    host.until(lambda: len(host.sockets) == 2)
    page.keyboard.type("x")
    host.until(lambda: host.typed == b"x")
    assert len({address.partition("?")[0] for address in host.addresses}) == 2, "another shell"


def test_the_person_can_end_the_shell(page, host):
    page.get_by_role("button", name="End shell").click()
    host.until(lambda: host.told[-1] == {"end": True})
    host.tell(end="Closed by bob.")
    host.cut(1000)
    page.get_by_text("Closed by bob.").wait_for()
    assert page.get_by_role("button", name="Open again").is_visible()


def test_a_path_that_is_frozen_is_shown_and_given_up(page, host, site):
    """Nothing comes any more, and nothing says so: the socket stays open. What is typed meanwhile waits."""
    page.route(
        site + "**", lambda route: route.abort() if route.request.method == "HEAD" else route.continue_()
    )
    host.print(b"before\r\n")
    host.until(lambda: "before" in screen(page))
    # As all times of the page: in the zone of Preferences, not in that of the browser.
    page.evaluate("document.documentElement.dataset.zone = 'Asia/Tokyo'")
    host.tell(beat=1)
    told = page.get_by_text("No contact since")
    told.wait_for(timeout=12_000)
    [clock] = re.findall(r"\d\d:\d\d:\d\d", told.inner_text())
    since = datetime.fromisoformat(f"2026-11-22T{clock}+09:00")
    assert (datetime.now(UTC) - since).total_seconds() % 86_400 < 600
    page.keyboard.type("ab")
    page.get_by_text("2 typed bytes wait.").wait_for()
    assert host.typed == b"" and len(host.sockets) == 1
    page.unroute_all()
    page.get_by_text("Connected").wait_for()
    assert len(host.sockets) == 2
    page.keyboard.type("c")
    host.until(lambda: host.typed == b"abc")
    assert screen(page).count("before") == 1


def test_a_shell_is_shared_from_its_page_and_everybody_sees_that(page, site):
    host = Host(page)
    host.answer = {"shared": False, "mayShare": True}
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    page.get_by_role("button", name="Share", exact=True).click()
    host.until(lambda: {"share": True} in host.told)
    assert page.get_by_text("shared: colleagues may watch").is_hidden(), "the server says so, not the click"
    host.tell(shared=True)
    page.get_by_text("shared: colleagues may watch").wait_for()
    page.get_by_role("button", name="Stop sharing").click()
    host.until(lambda: {"share": False} in host.told)
    host.tell(shared=False)
    page.get_by_role("button", name="Share", exact=True).wait_for()
    assert page.get_by_text("shared: colleagues may watch").is_hidden()


def test_who_only_watches_cannot_share(page, site):
    host = Host(page)
    host.answer = {"shared": True, "mayShare": False, "types": False}
    page.goto(site)
    page.get_by_text("shared: colleagues may watch").wait_for()
    assert page.get_by_role("button", name="Stop sharing").count() == 0


def test_the_page_tells_of_recording_and_when_it_fails(page, site):
    host = Host(page)
    host.answer = {"recording": True}
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    said = page.get_by_text("What this shell shows is recorded and kept for 30 days")
    assert said.is_visible()
    host.tell(recording="No space left on device")
    page.get_by_text("Output is not recorded at the moment: No space left on device").wait_for()
    assert said.is_hidden()
    host.tell(recording=True)
    said.wait_for()
    assert page.get_by_text("not recorded at the moment").is_hidden()
    host.answer = {"recording": False}
    page.reload()
    page.get_by_text("Connected").wait_for()
    assert said.is_hidden()
