"""The terminal page in a real browser: input is sent in order, output is shown and acknowledged."""

from __future__ import annotations

import json

import pytest

from tests.browser.static_site import served, shell_page


class Host:
    """The other end of the shell's socket."""

    def __init__(self, page, slow=False):
        self.page = page
        self.slow = slow
        self.typed = b""
        self.told = []
        self.sockets = []
        page.route_web_socket("**/ws/shell/**", self.connected)

    def connected(self, socket):
        self.sockets.append(socket)
        self.typed, self.told = b"", []
        socket.on_message(self.heard)
        self.say(opening="train@gpu-a")
        if not self.slow:
            self.say(ready=True)

    def heard(self, message):
        if isinstance(message, bytes):
            self.typed += message
        else:
            self.told.append(json.loads(message))

    def say(self, **message):
        self.sockets[-1].send(json.dumps(message))

    def print(self, data):
        self.sockets[-1].send(data)

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
    return page.locator(".xterm-rows").inner_text()


def test_the_terminal_sends_input_shows_output_and_resizes(page, host):
    (size,) = [told["resize"] for told in host.told[:1]]
    assert size[0] > 60 and size[1] > 10
    page.keyboard.type("ls é\n")
    host.until(lambda: host.typed == "ls é\r".encode())
    page.keyboard.press("Control+c")
    host.until(lambda: host.typed.endswith(b"\x03"))
    host.print("héllo \x1b[31mred\x1b[0m\r\n$ ".encode())
    host.until(lambda: "héllo red" in screen(page).replace("\xa0", " "))
    page.set_viewport_size({"width": 700, "height": 500})
    host.until(lambda: host.told[-1].get("resize", size)[0] < size[0])


def focused(page):
    return page.evaluate("document.activeElement.dataset.part || document.activeElement.className")


def test_the_keyboard_alone_can_leave_the_terminal(page, host):
    """Tab goes to the program; another key, which the page names, leaves the terminal and types nothing."""
    page.keyboard.press("Tab")
    host.until(lambda: host.typed == b"\t")
    assert focused(page) == "xterm-helper-textarea"
    assert "Shift+F6 leaves the terminal" in page.locator(".shell").inner_text()
    page.keyboard.press("Shift+F6")
    assert focused(page) == "leave" and host.typed == b"\t"
    page.keyboard.press("Tab")
    assert focused(page) == "xterm-helper-textarea"
    host.sockets[-1].close()
    page.get_by_role("button", name="Open again").wait_for()
    page.keyboard.press("Shift+Tab")
    assert focused(page) == "again", "a terminal that is closed takes no Tab"


def test_input_during_connecting_is_not_lost(page, site):
    host = Host(page, slow=True)
    page.goto(site)
    page.get_by_text("Opening a shell as train@gpu-a").wait_for()
    page.keyboard.type("make test")
    host.until(lambda: any("resize" in told for told in host.told))
    assert host.typed == b""
    host.say(ready=True)
    page.get_by_text("Connected").wait_for()
    page.keyboard.type("\n")
    host.until(lambda: host.typed == b"make test\r")


def test_output_is_acknowledged_when_it_is_on_the_screen(page, host):
    block = b"x" * 78 + b"\r\n"
    for _ in range(20):
        host.print(block * 100)
    host.until(lambda: any(told.get("ack", 0) >= 160_000 - 32_768 for told in host.told))
    assert max(told["ack"] for told in host.told if "ack" in told) <= 160_000


def test_a_large_paste_waits_for_acknowledgements_and_arrives_complete(page, host):
    paste = "".join(f"line {n}\n" for n in range(60_000))
    page.locator("textarea").evaluate(
        """(area, text) => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          area.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }""",
        paste,
    )
    host.until(lambda: len(host.typed) >= 192 * 1024)
    page.wait_for_timeout(200)
    # It waits for us now; the rest comes as we take it.
    assert len(host.typed) < 256 * 1024
    while len(host.typed) < len(paste):
        before = len(host.typed)
        host.say(ack=before)
        host.until(lambda before=before: len(host.typed) > before)
    assert host.typed == paste.replace("\n", "\r").encode()


def test_a_closed_shell_shows_the_reason_and_can_be_opened_again(page, host):
    again = page.get_by_role("button", name="Open again")
    assert not again.is_visible()
    host.say(closed="The replica is not running.")
    host.sockets[-1].close(code=4403, reason="short")
    page.get_by_text("The replica is not running.").wait_for()
    page.keyboard.type("lost")
    again.click()
    page.get_by_text("Connected").wait_for()
    host.until(lambda: len(host.sockets) == 2 and host.told)
    page.keyboard.type("x")
    host.until(lambda: host.typed == b"x")
