"""The frame of every page: command palette, keys, times in the viewer's zone, without the product's sockets."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import expect

from console.auth import preferences
from jobs.models import Membership
from tests.browser.looks import in_each_look
from tests.browser.test_job_lists import database_beside_the_browser
from tests.harness.accessibility import assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "database_beside_the_browser", "project"]

BEGUN = datetime(2026, 11, 22, 23, 30, 5, tzinfo=UTC)


@pytest.fixture
def rows(transactional_db, cast, project):
    a_host("bert-host", gpus=2)
    return [a_job(project, cast.bob, name=f"bert-{number}", created_at=BEGUN) for number in range(3)]


@pytest.fixture
def as_bob(browser, live_server, rows):
    """as_bob(context): a page of this context in which Bob is logged in."""

    def open_in(context, where="/jobs/"):
        session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
        )
        page = context.pages[0] if context.pages else context.new_page()
        page.goto(live_server.url + where)
        return page

    return open_in


@pytest.fixture
def seen(page, as_bob):
    return as_bob(page.context)


def options(page):
    return page.locator("#palette [role=option] .name").all_inner_texts()


def chosen(page):
    return page.locator("#palette [aria-selected=true]").inner_text()


def test_the_palette_opens_runs_and_closes_by_keys(seen):
    seen.get_by_role("link", name="bert-1").focus()
    seen.keyboard.press("Control+k")
    field = seen.get_by_role("combobox", name="Search everything")
    expect(field).to_be_focused()
    seen.locator("#palette [role=option]").first.wait_for()
    assert "New job" in options(seen) and "Keys" in options(seen)
    seen.keyboard.press("Escape")
    expect(seen.locator("#palette")).to_be_hidden()
    expect(seen.get_by_role("link", name="bert-1")).to_be_focused()
    seen.keyboard.press("Control+k")
    field.press_sequentially("bert")
    seen.locator("#palette-job").wait_for()
    expect(seen.locator("#palette-list")).to_have_attribute("data-text", "bert")
    assert options(seen)[:3] == ["bert-2", "bert-1", "bert-0"] and "bert-host" in options(seen)
    assert chosen(seen).startswith("bert-2")
    seen.keyboard.press("ArrowDown")
    assert chosen(seen).startswith("bert-1")
    assert field.get_attribute("aria-activedescendant") == "option-job-2"
    assert seen.locator("#palette-count").inner_text() == "4 results"
    seen.keyboard.press("Enter")
    seen.wait_for_url(re.compile(r"/jobs/\d+/"))
    expect(seen.get_by_role("heading", name="bert-1").first).to_be_visible()


def test_the_palette_does_what_scripts_can_do_on_the_page(seen):
    seen.get_by_role("link", name="Search", exact=True).click()
    seen.get_by_role("combobox", name="Search everything").press_sequentially("night")
    seen.get_by_role("option", name="Change between light and dark").click()
    assert seen.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.keyboard.press("Control+k")
    seen.get_by_role("combobox", name="Search everything").press_sequentially("hotkeys")
    expect(seen.locator("#palette-list")).to_have_attribute("data-text", "hotkeys")
    seen.keyboard.press("Enter")
    expect(seen.get_by_role("dialog", name="Keys")).to_be_visible()
    seen.keyboard.press("Escape")
    seen.keyboard.press("Control+k")
    seen.get_by_role("combobox", name="Search everything").press_sequentially("there is no such thing")
    expect(seen.locator("#palette-count")).to_have_text("Nothing that you may see fits.")
    seen.keyboard.press("Enter")
    seen.wait_for_url("**/search?q=there+is+no+such+thing")


def test_rows_of_a_list_are_chosen_opened_and_ticked_by_keys(seen):
    focused = lambda: seen.evaluate("document.activeElement.textContent")  # noqa: E731
    for key, name in (("j", "bert-2"), ("j", "bert-1"), ("j", "bert-0"), ("j", "bert-0"), ("k", "bert-1")):
        seen.keyboard.press(key)
        assert focused() == name
    seen.keyboard.press("x")
    assert seen.get_by_label("Select bert-1").is_checked() and focused() == "bert-1"
    seen.keyboard.press("Enter")
    seen.wait_for_url(re.compile(r"/jobs/\d+/"))
    seen.keyboard.press("g")
    seen.keyboard.press("h")
    seen.wait_for_url("**/hosts/")
    seen.keyboard.press("g")
    seen.keyboard.press("j")
    seen.wait_for_url("**/jobs/")
    seen.keyboard.press("/")
    expect(seen.get_by_label("Name or id")).to_be_focused()


def test_keys_do_nothing_while_somebody_types(seen):
    field = seen.get_by_label("Name or id")
    field.press_sequentially("jx?/gh")
    assert field.input_value() == "jx?/gh" and seen.url.endswith("/jobs/")
    assert seen.locator("dialog[open]").count() == 0
    # An input method composes a letter: that is no key of ours, wherever the focus is.
    seen.locator("main").focus()
    seen.evaluate(
        """() => document.activeElement.dispatchEvent(
             new KeyboardEvent("keydown", { key: "?", bubbles: true, isComposing: true }))"""
    )
    seen.keyboard.press("Alt+j")
    assert seen.evaluate("document.activeElement.id") == "content"
    assert seen.locator("dialog[open]").count() == 0
    seen.keyboard.press("?")
    expect(seen.get_by_role("dialog", name="Keys")).to_be_visible()
    # A dialog has the keys for itself.
    seen.keyboard.press("j")
    expect(seen.get_by_role("dialog", name="Keys")).to_be_visible()


def test_keys_of_one_letter_can_be_switched_off(seen, live_server, cast):
    seen.goto(f"{live_server.url}/account/preferences")
    seen.get_by_label("Keys of one letter").uncheck()
    seen.get_by_role("button", name="Keep").click()
    seen.get_by_text("Your preferences are kept.").wait_for()
    seen.goto(f"{live_server.url}/jobs/")
    seen.keyboard.press("j")
    seen.keyboard.press("?")
    assert seen.evaluate("document.activeElement.tagName") == "BODY"
    assert seen.locator("dialog[open]").count() == 0
    seen.keyboard.press("Control+k")
    expect(seen.get_by_role("combobox", name="Search everything")).to_be_focused()
    assert not preferences.of(cast.bob).single_keys


def test_times_are_in_the_viewers_zone_and_utc_is_a_hover_away(chromium, as_bob, rows, live_server, cast):
    context = chromium.new_context(timezone_id="Asia/Tokyo")
    page = as_bob(context, f"/jobs/{rows[0].pk}/")
    time = page.locator('[data-when="2026-11-22T23:30:05.000Z"]').first
    assert time.inner_text() == "2026-11-23 08:30:05 GMT+9"
    assert time.get_attribute("title") == "2026-11-22 23:30:05 UTC"
    time.click()
    assert time.inner_text() == "2026-11-22 23:30:05 UTC" and "08:30:05" in time.get_attribute("title")
    page.keyboard.press("u")
    assert time.inner_text() == "2026-11-23 08:30:05 GMT+9"
    # The text of the server comes again, as by a live part.
    page.evaluate(
        """() => {
          const time = document.querySelector("[data-when]");
          time.textContent = "2026-11-22 23:30:05 UTC";
          time.dispatchEvent(new CustomEvent("htmx:oobAfterSwap", { bubbles: true, detail: {} }));
        }"""
    )
    assert time.inner_text() == "2026-11-23 08:30:05 GMT+9"
    page.goto(f"{live_server.url}/jobs/")
    age = page.locator("tbody time").first
    assert age.get_attribute("title") == "2026-11-23 08:30:05 GMT+9 · 2026-11-22 23:30:05 UTC"
    # The zone of Preferences comes before that of the browser.
    page.goto(f"{live_server.url}/account/preferences")
    page.get_by_label("Time zone").select_option("America/Sao_Paulo")
    page.get_by_role("button", name="Keep").click()
    page.goto(f"{live_server.url}/jobs/{rows[0].pk}/")
    assert time.inner_text() == "2026-11-22 20:30:05 GMT-3"
    context.close()


SAID = """(texts) => document.body.dispatchEvent(new CustomEvent("toasts", { bubbles: true,
  detail: { all: texts.map((text) => ({ text, level: text.startsWith("No") ? "error" : "success" })) } }))"""


def test_a_toast_can_be_read_again(seen, live_server):
    seen.clock.install()
    bell = seen.locator("#bell")
    expect(bell).to_be_hidden()
    seen.evaluate(SAID, ["It is kept.", "No: the host is away."])
    corner = seen.locator("#toasts")
    expect(corner.locator(".note")).to_have_count(2)
    assert corner.get_attribute("role") == "status"
    expect(bell).to_have_accessible_name("Messages, 2 new")
    # Long enough to be read, and longer while somebody points at it. An error stays.
    seen.clock.run_for(5000)
    corner.get_by_text("It is kept.").hover()
    seen.clock.run_for(60_000)
    expect(corner.locator(".note")).to_have_count(2)
    seen.mouse.move(0, 0)
    seen.clock.run_for(10_000)
    expect(corner.locator(".note")).to_have_count(1)
    corner.get_by_role("button", name="Close").click()
    expect(corner.locator(".note")).to_have_count(0)
    seen.goto(f"{live_server.url}/hosts/")
    bell.click()
    expect(seen.locator("#said-list li")).to_have_count(2)
    assert seen.locator("#said-list li").first.inner_text().startswith("No: the host is away.")
    assert_accessible(seen)
    seen.keyboard.press("Escape")
    expect(bell).to_have_accessible_name("Messages")
    seen.evaluate(SAID, [f"number {number}" for number in range(25)])
    assert len(seen.evaluate("JSON.parse(sessionStorage.messages).all")) == 20


def test_what_a_page_said_is_kept_and_another_person_does_not_read_it(seen, browser, live_server):
    seen.goto(f"{live_server.url}/account/preferences")
    seen.get_by_role("button", name="Keep").click()
    seen.get_by_text("Your preferences are kept.").wait_for()
    seen.goto(f"{live_server.url}/jobs/")
    seen.locator("#bell").click()
    expect(seen.locator("#said-list")).to_contain_text("Your preferences are kept.")
    session = browser("vera").cookies[settings.SESSION_COOKIE_NAME].value
    seen.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    seen.goto(f"{live_server.url}/jobs/")
    expect(seen.locator("#bell")).to_be_hidden()
    assert "preferences are kept" not in seen.content()


def test_help_opens_above_the_page_and_the_project_is_chosen_there(seen, live_server, cast):
    Membership.objects.create(project=cast.elsewhere, user=cast.bob, role="viewer")
    seen.goto(f"{live_server.url}/jobs/queue")
    seen.get_by_role("link", name="Help on this page").click()
    help = seen.get_by_role("dialog", name="Queue")
    expect(help).to_contain_text("The jobs that wait")
    help.get_by_role("link", name="Keys").click()
    expect(seen.get_by_role("dialog", name="Keys")).to_be_visible()
    seen.get_by_role("button", name="Close").click()
    seen.get_by_role("link", name="Project: All projects").click()
    seen.get_by_role("dialog", name="Choose a project").get_by_role("button", name="elsewhere").click()
    seen.wait_for_url("**/jobs/queue?project=elsewhere")
    assert_accessible(seen)
    seen.get_by_role("link", name="Only project elsewhere").click()
    seen.wait_for_url("**/jobs/queue?project=")


def test_the_frame_works_without_scripts(chromium, as_bob):
    context = chromium.new_context(java_script_enabled=False, timezone_id="Asia/Tokyo")
    page = as_bob(context)
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox", name="A job").fill("bert-1")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="bert-1").click()
    expect(page.get_by_role("button", name="Messages")).to_be_hidden()
    expect(page.get_by_text("2026-11-22 23:30:05 UTC").first).to_be_visible()
    page.get_by_role("link", name="Help on this page").click()
    expect(page.get_by_role("heading", name="A job")).to_be_visible()
    context.close()


@in_each_look
def test_each_state_of_the_frame_is_accessible_and_fits(seen, live_server, width, theme):
    seen.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    seen.set_viewport_size({"width": width, "height": 800})

    def look(name):
        assert_accessible(seen)
        assert seen.evaluate("document.documentElement.scrollWidth") <= width, name
        if folder := os.environ.get("SHOTS"):
            seen.screenshot(path=str(Path(folder) / f"{name}-{theme}-{width}.png"))

    pages = ("/account/preferences", "/help/keys", "/help/", "/help/on/queue", "/project")
    for address in ("/search?q=bert", "/search?q=nothing-like-this", *pages):
        seen.goto(live_server.url + address)
        look(re.sub(r"\W+", "-", address))
    seen.goto(f"{live_server.url}/jobs/")
    seen.keyboard.press("j")
    look("row")
    seen.keyboard.press("Control+k")
    seen.locator("#palette [role=option]").first.wait_for()
    look("palette")
    seen.get_by_role("combobox", name="Search everything").press_sequentially("bert")
    expect(seen.locator("#palette-list")).to_have_attribute("data-text", "bert")
    look("palette-found")
    seen.get_by_role("combobox", name="Search everything").press_sequentially("-nothing")
    expect(seen.locator("#palette-count")).to_have_text("Nothing that you may see fits.")
    look("palette-nothing")
    seen.keyboard.press("Escape")
    seen.get_by_role("link", name="Help on this page").click()
    expect(seen.get_by_role("dialog", name="Jobs")).to_be_visible()
    look("help")
    seen.keyboard.press("Escape")
    seen.evaluate(SAID, ["It is kept.", "No: the host is away."])
    look("toasts")
    seen.locator("#bell").click()
    look("messages")
