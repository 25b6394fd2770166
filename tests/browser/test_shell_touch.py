"""A shell on a phone: the keys that its keyboard does not have, and the size of the letters."""

from __future__ import annotations

import pytest

from tests.browser.static_site import served, shell_page
from tests.browser.test_shell_page import Host, screen
from tests.browser.test_shell_replay import (
    browser,
    cast,
    database_beside_the_browser,
    project,
    replay,
    session,
)
from tests.harness.accessibility import WCAG22, assert_accessible

__all__ = ["browser", "cast", "database_beside_the_browser", "project", "replay", "session"]

SIZE = "getComputedStyle(document.querySelector('.xterm-rows')).fontSize"


@pytest.fixture(scope="module")
def site():
    with served(shell_page(), inline_styles=True) as address:
        yield address


@pytest.fixture
def phone(chromium, site):
    """A page on a phone, which has a clipboard, with an open shell."""
    context = chromium.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.rstrip("/"))
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda problem: page.problems.append(str(problem)))
    page.host = Host(page)
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    yield page
    context.close()
    assert page.problems == []


def tap(page, name):
    page.get_by_role("toolbar", name="Keys").get_by_role("button", name=name, exact=True).tap()


def columns_of(page):
    return next(told["resize"][0] for told in reversed(page.host.told) if "resize" in told)


def has_typed(page, data):
    page.host.until(lambda: page.host.typed == data)
    page.host.typed = b""


def test_escape_tab_and_arrows_are_typed_and_the_keyboard_stays(phone):
    phone.evaluate("document.activeElement.addEventListener('blur', () => (document.title = 'left'))")
    for name, data in (("Esc", b"\x1b"), ("Tab", b"\t"), ("Arrow left", b"\x1b[D"), ("Arrow up", b"\x1b[A")):
        tap(phone, name)
        has_typed(phone, data)
    assert phone.evaluate("document.activeElement.className") == "xterm-helper-textarea"
    assert phone.title() != "left", "the terminal never lost the focus, so the keyboard of the phone stayed"
    phone.host.print(b"\x1b[?1h an editor\r\n")
    phone.host.until(lambda: "an editor" in screen(phone))
    for name, data in (("Arrow down", b"\x1bOB"), ("Arrow right", b"\x1bOC")):
        tap(phone, name)
        has_typed(phone, data)


def test_ctrl_is_held_for_one_key(phone):
    ctrl = phone.get_by_role("button", name="Ctrl", exact=True)
    tap(phone, "Ctrl")
    assert ctrl.get_attribute("aria-pressed") == "true"
    phone.keyboard.type("c")
    has_typed(phone, b"\x03")
    assert ctrl.get_attribute("aria-pressed") == "false"
    phone.keyboard.type("c")
    has_typed(phone, b"c")
    tap(phone, "Ctrl")
    tap(phone, "Arrow right")
    has_typed(phone, b"\x1b[1;5C")
    tap(phone, "Ctrl")
    tap(phone, "Ctrl")
    phone.keyboard.type("d")
    has_typed(phone, b"d")


def test_an_answer_of_the_terminal_is_not_what_ctrl_is_held_for(phone):
    tap(phone, "Ctrl")
    phone.host.print(b"\x1b[6nasked\r\n")
    phone.host.until(lambda: phone.host.typed.endswith(b"R"))
    phone.host.typed = b""
    phone.keyboard.type("z")
    has_typed(phone, b"\x1a")


def test_paste_asks_before_several_lines(phone):
    phone.evaluate("navigator.clipboard.writeText('one word')")
    tap(phone, "Paste")
    has_typed(phone, b"one word")
    phone.evaluate("navigator.clipboard.writeText('rm -rf x\\nls\\n')")
    tap(phone, "Paste")
    phone.get_by_role("dialog", name="Paste 2 lines?").get_by_role("button", name="Cancel").tap()
    tap(phone, "Esc")
    has_typed(phone, b"\x1b")


def test_a_clipboard_that_is_refused_is_said(phone):
    phone.evaluate("void (navigator.clipboard.readText = () => Promise.reject(new Error('no')))")
    tap(phone, "Paste")
    phone.get_by_text("does not give the clipboard").wait_for()


def test_the_bar_fits_and_passes_axe_and_is_not_there_for_a_mouse(phone, page, site):
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    assert_accessible(phone, WCAG22)
    tap(phone, "Ctrl")
    assert_accessible(phone, WCAG22)
    Host(page)
    page.goto(site)
    page.get_by_text("Connected").wait_for()
    assert not page.get_by_role("toolbar", name="Keys").is_visible()


def test_smaller_letters_bring_more_columns_and_stay(phone):
    columns = columns_of(phone)
    for _ in range(2):
        phone.get_by_role("button", name="Smaller letters").tap()
    assert phone.evaluate(SIZE) == "10px"
    phone.host.until(lambda: columns_of(phone) > columns * 1.2)
    phone.reload()
    phone.get_by_text("Connected").wait_for()
    assert phone.evaluate(SIZE) == "10px"
    for _ in range(20):
        if phone.get_by_role("button", name="Smaller letters").is_enabled():
            phone.get_by_role("button", name="Smaller letters").tap()
    assert phone.evaluate(SIZE) == "8px"
    assert phone.get_by_role("button", name="Smaller letters").is_disabled()


def test_the_letters_of_a_replay_have_the_same_size(page, replay):
    replay([[0.1, "o", "first"]])
    page.get_by_role("button", name="Larger letters").click()
    assert page.evaluate(SIZE) == "16px"
    page.reload()
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate(SIZE) == "16px"
    assert page.evaluate("localStorage.getItem('trainyard.shell.font')") == "16"
