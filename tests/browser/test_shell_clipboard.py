"""Copy and paste by the keys of each system, the question before several lines, search and links in a terminal."""

from __future__ import annotations

import json

import pytest

from tests.browser.static_site import served, shell_page
from tests.browser.test_shell_page import Host, paste, screen

PLATFORMS = {"Linux x86_64": "other", "Win32": "windows", "MacIntel": "mac"}


@pytest.fixture(scope="module")
def site():
    with served(shell_page(), inline_styles=True) as address:
        yield address


@pytest.fixture
def visit(page, site):
    def visit(platform="Linux x86_64"):
        origin = site.rstrip("/")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
        page.add_init_script(
            f"Object.defineProperty(navigator, 'platform', {{ get: () => {json.dumps(platform)} }});"
            "Object.defineProperty(navigator, 'userAgentData', { get: () => undefined });"
        )
        host = Host(page)
        page.goto(site)
        page.get_by_text("Connected").wait_for()
        host.print(b"copy me\r\n")
        host.until(lambda: "copy me" in screen(page))
        return host

    return visit


def select_first_word(page):
    box = page.locator(".xterm-rows > div").first.bounding_box()
    page.mouse.dblclick(box["x"] + 8, box["y"] + box["height"] / 2)
    page.locator(".xterm-selection > div").first.wait_for(state="attached")


def clipboard(page):
    return page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("keys", ["Control+Shift+C", "Control+Insert"])
def test_copy_by_keys_types_nothing(page, visit, platform, keys):
    host = visit(platform)
    page.evaluate("navigator.clipboard.writeText('')")
    select_first_word(page)
    page.keyboard.press(keys)
    host.until(lambda: clipboard(page) == "copy")
    assert host.typed == b""


def test_control_c_copies_what_is_selected_on_windows_and_interrupts_then(page, visit):
    host = visit("Win32")
    select_first_word(page)
    page.keyboard.press("Control+C")
    host.until(lambda: clipboard(page) == "copy")
    page.keyboard.press("Control+C")
    host.until(lambda: host.typed == b"\x03")


@pytest.mark.parametrize("platform", ["Linux x86_64", "MacIntel"])
def test_control_c_interrupts_elsewhere_also_while_something_is_selected(page, visit, platform):
    host = visit(platform)
    select_first_word(page)
    page.keyboard.press("Control+C")
    host.until(lambda: host.typed == b"\x03")


@pytest.mark.parametrize(
    ("platform", "keys", "typed"),
    [
        ("Linux x86_64", "Control+Shift+V", b"one word"),
        ("Linux x86_64", "Shift+Insert", b"one word"),
        ("Linux x86_64", "Control+V", b"\x16"),
        ("Win32", "Control+V", b"one word"),
        ("MacIntel", "Control+V", b"\x16"),
    ],
)
def test_paste_by_keys(page, visit, platform, keys, typed):
    host = visit(platform)
    page.evaluate("navigator.clipboard.writeText('one word')")
    page.locator("textarea").focus()
    page.keyboard.press(keys)
    host.until(lambda: host.typed == typed)


def test_several_lines_are_shown_and_asked_about(page, visit):
    host = visit()
    paste(page, "cd data\r\nrm -rf x\n")
    question = page.get_by_role("dialog", name="Paste 2 lines?")
    question.wait_for()
    assert "cd data\nrm -rf x" in question.inner_text() and "pressed Enter" in question.inner_text()
    assert host.typed == b""
    question.get_by_role("button", name="Cancel").click()
    paste(page, "echo once\n")
    page.get_by_role("dialog", name="Paste 1 line?").wait_for()
    page.keyboard.press("Escape")
    paste(page, "no question")
    host.until(lambda: host.typed == b"no question")
    paste(page, "one\ntwo\n")
    page.get_by_role("button", name="Paste").click()
    host.until(lambda: host.typed == b"no questionone\rtwo\r")


def test_a_program_that_asked_for_brackets_gets_them_and_nothing_breaks_out(page, visit):
    host = visit()
    host.print(b"\x1b[?2004h$ ")
    host.until(lambda: "$" in screen(page))
    paste(page, "echo one\n")
    host.until(lambda: host.typed == b"\x1b[200~echo one\r\x1b[201~")
    paste(page, "safe\x1b[201~\nrm -rf x\x03\nlast")
    question = page.get_by_role("dialog", name="Paste 3 lines?")
    assert "runs nothing before you press Enter" in question.inner_text()
    host.typed = b""
    page.get_by_role("button", name="Paste").click()
    host.until(lambda: host.typed == b"\x1b[200~safe[201~\rrm -rf x\rlast\x1b[201~")


def test_the_question_can_be_switched_off_for_the_session(page, visit):
    host = visit()
    paste(page, "one\ntwo\n")
    page.get_by_label("Do not ask again").check()
    page.get_by_role("button", name="Paste").click()
    host.until(lambda: host.typed == b"one\rtwo\r")
    page.reload()
    page.get_by_text("Connected").wait_for()
    host.typed = b""
    paste(page, "three\nfour\n")
    host.until(lambda: host.typed == b"three\rfour\r")


def test_a_hundred_thousand_characters_arrive_once(page, visit):
    host = visit()
    text = "".join(f"{number:09d}\n" for number in range(10_000))
    paste(page, text)
    page.get_by_role("button", name="Paste").click()
    host.until(lambda: len(host.typed) >= len(text))
    page.wait_for_timeout(200)
    assert host.typed == text.replace("\n", "\r").encode()


def test_search_finds_counts_and_closes(page, visit):
    host = visit()
    host.print(b"".join(b"epoch %d loss\r\n" % number for number in range(200)))
    host.until(lambda: "epoch 199" in screen(page))
    page.keyboard.press("Control+Shift+F")
    field = page.get_by_label("Search in the output")
    field.fill("epoch 1")
    page.get_by_text("of 111").wait_for()
    field.press("Enter")
    page.get_by_role("button", name="Later").click()
    field.fill("no such words")
    page.get_by_text("Nothing found").wait_for()
    field.press("Escape")
    assert not field.is_visible() and host.typed == b""
    page.keyboard.type("x")
    host.until(lambda: host.typed == b"x")


def where_is(page, text):
    row = page.locator(".xterm-rows > div", has_text=text).first.bounding_box()
    return row["x"] + 30, row["y"] + row["height"] / 2


def test_addresses_open_in_a_page_of_their_own_and_are_shown_whole(page, visit, site):
    host = visit()
    address = f"{site}#the-whole-address"
    host.print(b"see:\r\n" + address.encode() + b"\r\njavascript:alert(1)\r\nfile:///etc/passwd\r\n")
    host.until(lambda: "passwd" in screen(page))
    page.mouse.move(*where_is(page, "the-whole"))
    page.locator("[data-part=address]", has_text=address).wait_for()
    with page.context.expect_page() as opened:
        page.mouse.click(*where_is(page, "the-whole"))
    assert opened.value.url == address and opened.value.evaluate("window.opener") is None
    opened.value.close()
    for text in ("javascript:", "file:"):
        page.mouse.move(*where_is(page, text))
        page.mouse.click(*where_is(page, text))
    page.wait_for_timeout(200)
    assert len(page.context.pages) == 1


def test_osc_8_asks_with_the_whole_address_and_osc_52_does_nothing(page, visit, site):
    host = visit()
    page.evaluate("navigator.clipboard.writeText('mine')")
    hidden = f"{site}#elsewhere"
    link = b"\x1b]8;;%b\x1b\\your bank\x1b]8;;\x1b\\\r\n"
    host.print(b"\x1b]52;c;c3RvbGVu\x07" + link % hidden.encode() + link % b"javascript:alert(1)")
    host.until(lambda: screen(page).count("your bank") == 2)
    page.mouse.move(*where_is(page, "your bank"))
    page.locator("[data-part=address]", has_text=hidden).wait_for()
    page.mouse.click(*where_is(page, "your bank"))
    question = page.get_by_role("dialog", name="Open this address?")
    question.wait_for()
    assert hidden in question.inner_text() and len(page.context.pages) == 1
    question.get_by_role("button", name="Cancel").click()
    row = page.locator(".xterm-rows > div", has_text="your bank").last.bounding_box()
    page.mouse.click(row["x"] + 30, row["y"] + row["height"] / 2)
    page.wait_for_timeout(200)
    assert not question.is_visible() and len(page.context.pages) == 1
    assert clipboard(page) == "mine" and b"52;" not in host.typed


def test_a_host_that_broke_the_protocol_is_named(page, visit):
    host = visit()
    host.tell(closed="The host broke the protocol of shells: output at 7, where 0 was due")
    host.cut(1013)
    page.get_by_text("The host broke the protocol of shells: output at 7").wait_for()
