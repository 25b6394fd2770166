"""The replay of a recorded shell in a real browser, under the real policy: played, sought, selected, and harmless."""

from __future__ import annotations

import json
import os
import re
import zlib
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import expect

from jobs import shells
from jobs.models import AuditEntry, RecordingPiece, RecordingState, ShellSession
from tests.browser.looks import in_each_look
from tests.harness.accessibility import WCAG22, assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_shell

__all__ = ["browser", "cast", "project"]

KEY = "0123456789abcdef" * 2
HEADER = {"version": 2, "width": 60, "height": 10, "timestamp": 1}
# A line each second, with a long pause before the last ones.
LINES = [[float(n) if n < 20 else 600.0 + n, "o", f"line-{n:02}\r\n"] for n in range(30)]
# What a hostile program may have printed, and what a hostile host may have made of the recording.
HOSTILE = [
    [0.1, "o", "\x1b]52;c;c3RvbGVu\x07\x1b]0;a title\x07\x1b]2;another\x1b\\"],
    [0.1, "o", "\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07 <img src=x onerror=alert(1)> "],
    [0.1, "o", "\x1b[c\x1b[>c\x1b[6n\x1bP$qm\x1b\\\x1b]10;?\x07\x1b[18t\x1b[5i\x1b[4i"],
    [0.1, "o", "\x1b[999999999;999999999H\x1b[38;5;" + "1;" * 5000 + "m\x1bPq" + "#0~~" * 5000 + "\x1b\\"],
    [0.1, "r", "999999x999999"],
    [0.1, "r", "0x-1"],
    [0.1, "i", "typed"],
    [0.1, "m", "<b>mark</b>\x1b]0;x\x07"],
    ["x", "o", "no time"],
    [1e300, "o", "later than ever\r\n"],
    [-5, "o", "back in time\r\n"],
    [0.2, "o", 7],
    {"not": "an event"},
    None,
    [0.3, "o", "\u202egnp.exe\u202c \x00\x85 still here"],
]


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def session(transactional_db, cast, project):
    job = a_job(project, cast.bob, name="bert", host=a_host("gpu-7"))
    session = a_shell(job.runs.get(), cast.bob, opened_at=timezone.now() - timedelta(hours=2))
    shells.record_closed(session, "The shell has ended.", timezone.now())
    return session


@pytest.fixture
def replay(page, live_server, browser, session):
    """replay(events) → the page that plays them. Bob is logged in. In the end nothing but the player has happened."""
    cookie = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": live_server.url}]
    )
    wrong, foreign = [], []
    # The socket of live pages is not served here.
    page.on("console", lambda m: m.type == "error" and "WebSocket" not in m.text and wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith(live_server.url) or foreign.append(request.url))

    def replay(events, header=HEADER, state=RecordingState.WHOLE, loads=True):
        data = "".join(json.dumps(each) + "\n" for each in (header, *events)).encode()
        half = len(data) // 2
        RecordingPiece.objects.all().delete()
        for start, end in ((0, half), (half, len(data))):
            packed = zlib.compress(data[start:end])
            RecordingPiece.objects.create(session=session, start=start, end=end, data=packed)
        ShellSession.objects.update(recording_stored=len(data), recording_state=state)
        page.goto(f"{live_server.url}/jobs/{session.run.job_id}/shells/{KEY}/replay")
        if loads:
            page.get_by_role("button", name="Play").wait_for()
        return page

    yield replay
    assert wrong == [] and [url for url in foreign if not url.startswith(("data:", "blob:"))] == []


def screen(page):
    return page.locator(".xterm-rows").inner_text().replace("\xa0", " ")


def shows(page, text):
    expect(page.locator(".xterm-rows")).to_contain_text(text, timeout=60_000)


def hides(page, text):
    expect(page.locator(".xterm-rows")).not_to_contain_text(text, timeout=60_000)


def position(page):
    return page.get_by_role("slider", name="Position")


def test_it_plays_as_fast_as_it_is_told_and_pauses(replay):
    page = replay(LINES)
    assert "line-00" in screen(page) and "line-02" not in screen(page)
    expect(page.locator("[data-replay=time]")).to_have_text("0:00 of 0:30")
    page.get_by_label("Speed").select_option("16")
    page.get_by_role("button", name="Play").click()
    shows(page, "line-29")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    # So slow that it is not over before the next click, however busy the machine is.
    page.get_by_label("Speed").select_option("1")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").click()
    stopped = screen(page)
    page.wait_for_timeout(400)
    assert screen(page) == stopped and "line-29" not in stopped
    assert AuditEntry.objects.filter(what="shell.replay", actor="bob").count() == 1


def test_a_person_goes_to_any_place_by_keys(replay):
    page = replay(LINES)
    slider = position(page)
    slider.focus()
    page.keyboard.press("End")
    shows(page, "line-29")
    assert slider.get_attribute("aria-valuetext") == "0:30 of 0:30"
    page.keyboard.press("ArrowLeft")
    hides(page, "line-26")
    shows(page, "line-24")
    page.keyboard.press("Home")
    hides(page, "line-05")
    shows(page, "line-00")
    page.locator("[data-replay=screen]").focus()
    page.keyboard.press("ArrowRight")
    shows(page, "line-05")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_pauses_are_shortened_unless_a_person_wants_them(replay):
    page = replay(LINES)
    position(page).focus()
    page.keyboard.press("End")
    page.get_by_label("Shorten pauses").uncheck()
    expect(page.locator("[data-replay=time]")).to_have_text("10:29 of 10:29")
    assert "line-29" in screen(page)
    page.get_by_label("Shorten pauses").check()
    expect(page.locator("[data-replay=time]")).to_have_text("0:30 of 0:30")


def test_text_is_selected_copied_and_found(replay):
    page = replay([[0.0, "o", "copy this\r\n"], [1.0, "o", "and find-me\r\n"]])
    origin = re.match(r"https?://[^/]+", page.url)[0]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
    box = page.locator(".xterm-rows > div").first.bounding_box()
    page.mouse.dblclick(box["x"] + 8, box["y"] + box["height"] / 2)
    page.keyboard.press("Control+Shift+C")
    assert page.evaluate("navigator.clipboard.readText()") == "copy"
    position(page).focus()
    page.keyboard.press("End")
    page.get_by_role("button", name="Search").click()
    page.get_by_label("Search in the output").fill("find-me")
    page.get_by_text("1 of 1").wait_for()


def test_a_hostile_recording_does_nothing(replay):
    page = replay(HOSTILE)
    origin = re.match(r"https?://[^/]+", page.url)[0]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
    page.evaluate("navigator.clipboard.writeText('mine')")
    sent = []
    page.on("request", lambda request: request.method != "HEAD" and sent.append(request.url))
    title = page.title()
    for key in ("End", "Home", "End"):
        position(page).focus()
        page.keyboard.press(key)
    shows(page, "still here")
    assert page.evaluate("navigator.clipboard.readText()") == "mine" and page.title() == title
    assert page.locator("[data-recording] img, [data-recording] b").count() == 0
    size = page.locator(".xterm-rows > div").count()
    assert 0 < size <= 200
    assert sent == [], "a terminal that answers would type into nothing, and asks nobody"
    page.keyboard.type("rm -rf /\n")
    assert "rm -rf" not in screen(page)


@pytest.mark.parametrize("header", [{"version": 3}, [], {"version": "2"}, 5])
def test_what_is_no_recording_is_said(replay, header):
    page = replay(LINES, header=header, loads=False)
    page.get_by_text("This recording cannot be read.").wait_for()
    expect(page.get_by_role("button", name="Play")).to_be_hidden()
    assert page.get_by_role("link", name="Download").is_visible()


def test_a_recording_of_sixty_megabytes_is_shown(replay):
    events = [[n / 100, "o", "0123456789abcdef" * 1000 + f" row-{n}\r\n"] for n in range(3900)]
    page = replay(events)
    position(page).focus()
    page.keyboard.press("End")
    shows(page, "row-3899")
    page.keyboard.press("ArrowLeft")
    hides(page, "row-3899")


def test_without_scripts_there_is_the_download(replay, page, live_server):
    replay(LINES)
    context = page.context.browser.new_context(java_script_enabled=False)
    context.add_cookies(page.context.cookies())
    plain = context.new_page()
    plain.goto(page.url)
    assert plain.locator("noscript p").is_visible()
    with plain.expect_download() as download:
        plain.get_by_role("link", name="Download").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert json.loads(lines[0]) == HEADER and len(lines) == len(LINES) + 1
    context.close()


@in_each_look
def test_the_page_is_usable_small_and_wide_light_and_dark(replay, page, width, theme, tmp_path):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    replay(
        [*LINES, [700.0, "m", "12345 characters of output are left out here."], [701.0, "x", "3"]],
        state="cut",
    )
    position(page).focus()
    page.keyboard.press("End")
    page.get_by_text("The shell has ended with status 3.").wait_for()
    assert page.get_by_text("Its end is missing").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert_accessible(page, WCAG22)
    page.screenshot(path=os.environ.get("REPLAY_SHOTS", str(tmp_path)) + f"/replay-{width}-{theme}.png")
