"""The pages of studies in a browser: sorted without a reload, accessible, on a phone, in the dark."""

from __future__ import annotations

import os

import pytest
from django.conf import settings

from jobs.models import Trial
from tests.browser.looks import in_each_look
from tests.harness.accessibility import assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_tuning_job
from tests.unit.console.views.test_studies import a_trial, report, study

__all__ = ["browser", "cast", "project", "study"]


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def filled(transactional_db, cast, project, study):
    """With enough results for every plot, and curves of two trials."""
    host = a_host()
    for number in range(6, 30):
        a_trial(study, number, loss=1 / number)
    running = a_job(project, cast.bob, name="running", host=host)
    a_trial(study, 30, job=running, state="ACTIVE", ended_at=None)
    report(running, host, 0.9, 0.5, 0.4)
    stopped = a_job(project, cast.bob, name="stopped", state="CANCELLED", host=host)
    a_trial(
        study, 31, 0.8, job=stopped, stopped_early="Stopped early by the median rule: the others were better."
    )
    report(stopped, host, 0.95, 0.8)
    return study


@pytest.fixture
def other(cast, project, filled):
    """A second study with several metrics, its trials as good as none."""
    metrics = [{"metricId": "loss", "goal": "MINIMIZE"}, {"metricId": "speed", "goal": "MAXIMIZE"}]
    metrics.append({"metricId": "size", "goal": "MINIMIZE"})
    study = {**filled.study, "metrics": metrics}
    made = a_tuning_job(a_job(project, cast.bob, name="other"), study=study, display_name="other")
    made.trials.all().delete()
    for number in range(1, 21):
        values = {"loss": 1 / number, "speed": float(number), "size": float(number % 7)}
        a_trial(made, number, final={"step": 1, "elapsed": 1.0, "metrics": values})
    return made


@pytest.fixture
def seen(page, live_server, browser, filled):
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.goto(f"{live_server.url}/studies/{filled.pk}/")
    return page


def numbers(page):
    return [int(text) for text in page.locator("#trials tbody th a").all_inner_texts()]


def test_a_click_on_a_column_sorts_the_trials_and_stays_in_the_address(seen):
    assert numbers(seen)[:3] == [1, 2, 3]
    seen.get_by_role("link", name="loss", exact=True).click()
    seen.wait_for_url("**sort=m.loss**")
    seen.locator("th[aria-sort=ascending]", has_text="loss").wait_for()
    assert numbers(seen)[:2] == [29, 28]
    seen.reload()
    assert numbers(seen)[:2] == [29, 28]
    seen.go_back()
    seen.wait_for_url(lambda url: "sort" not in url)


def test_the_scale_of_the_results_is_another_one_after_a_click(seen):
    dots = seen.locator("#results path.dots")
    linear = dots.get_attribute("d")
    seen.get_by_role("link", name="Logarithmic scale loss").click()
    seen.get_by_role("link", name="Linear scale loss").wait_for()
    assert "results.m.loss=log" in seen.url and dots.get_attribute("d") != linear
    seen.get_by_role("link", name="loss", exact=True).click()
    seen.locator("th[aria-sort=ascending]", has_text="loss").wait_for()
    assert "results.m.loss=log" in seen.url
    seen.get_by_role("link", name="Linear scale loss").click()
    seen.get_by_role("link", name="Logarithmic scale loss").wait_for()
    assert dots.get_attribute("d") == linear and numbers(seen)[:2] == [29, 28]


def test_a_cancel_is_confirmed_first(seen, filled):
    seen.get_by_role("button", name="Cancel", exact=True).click()
    seen.get_by_role("button", name="Let it run").click()
    filled.refresh_from_db()
    assert filled.cancel_requested_at is None
    seen.get_by_role("button", name="Cancel", exact=True).click()
    seen.get_by_role("button", name="Cancel the study").click()
    seen.get_by_text("bob cancelled it").wait_for()


def handle(page, name, end):
    return page.get_by_role("slider", name=f"{name}, {end}", exact=True)


def test_a_brush_on_an_axis_filters_the_trials_by_mouse_and_by_keyboard(seen):
    # Results are 1/6 to 1/29, 0.5, 0.25 and 0.8; the newest trial with a result has the number 31.
    seen.locator("#pointed-line").scroll_into_view_if_needed()
    box = handle(seen, "lr", "to").locator("..").bounding_box()
    seen.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.2)
    seen.mouse.down()
    seen.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.35, steps=4)
    seen.mouse.up()
    seen.wait_for_url(lambda url: "from.p.lr=" in url)
    seen.get_by_text("trials are inside of all ranges").wait_for()
    kept = numbers(seen)
    assert kept and len(kept) < 27 and "#" not in seen.url
    # The same by keys: first without a range, then all but the smallest results.
    handle(seen, "lr", "to").press("Escape")
    seen.wait_for_url(lambda url: "p.lr" not in url)
    assert len(numbers(seen)) > len(kept)
    upper = handle(seen, "loss", "to")
    upper.focus()
    for _ in range(5):
        seen.keyboard.press("PageDown")
    seen.wait_for_url(lambda url: "to.m.loss=" in url)
    seen.get_by_text("trials are inside of all ranges").wait_for()
    assert 1 not in numbers(seen) and 31 not in numbers(seen) and 2 in numbers(seen)
    # The exchange has made another handle, and it has the focus.
    seen.wait_for_function("document.activeElement.dataset.handle === 'to.m.loss'")
    seen.reload()
    assert 1 not in numbers(seen) and 2 in numbers(seen)
    assert handle(seen, "loss", "to").get_attribute("aria-valuenow") == "50"
    seen.get_by_role("link", name="Show all trials").click()
    seen.wait_for_url(lambda url: "loss" not in url)
    assert 1 in numbers(seen)


def test_an_axis_is_hidden_and_a_line_is_named_under_the_pointer(seen):
    seen.get_by_text("Ranges and axes").click()
    seen.get_by_label("Hide the axis").first.check()
    seen.wait_for_url(lambda url: "hide.p.lr=1" in url)
    seen.locator("[data-axis]").nth(1).wait_for()
    assert handle(seen, "lr", "to").count() == 0 and handle(seen, "kind", "to").count() == 1
    # What was open and had the focus is and has it after the exchange.
    seen.wait_for_function("document.activeElement.name === 'hide.p.lr'")
    seen.get_by_label("Hide the axis").first.uncheck()
    seen.wait_for_url(lambda url: "hide" not in url)
    seen.locator("[data-axis]").nth(2).wait_for()
    seen.locator("#pointed-line").scroll_into_view_if_needed()
    box = seen.locator(".brushed").bounding_box()
    words = seen.locator("#pointed-line")
    for share in range(5, 95):
        seen.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * share / 100)
        if words.inner_text():
            break
    assert words.inner_text().startswith("Trial ") and "loss" in words.inner_text()
    assert seen.locator(".brushed .pointed").count() == 1


def test_the_lines_of_trials_are_walked_by_keys(seen):
    """What the pointer shows, the keyboard shows too: it begins with the best trial."""
    words = seen.locator("#pointed-line")
    walker = seen.get_by_role("slider", name="The lines of the trials")
    walker.focus()
    assert (
        words.inner_text().startswith("Trial 29: loss 0.03")
        and seen.locator(".brushed .pointed").count() == 1
    )
    walker.press("ArrowLeft")
    assert words.inner_text().startswith("Trial 28:")
    assert walker.get_attribute("aria-valuetext").startswith("Trial 28:")
    walker.press("Home")
    assert words.inner_text().startswith("Trial 1:") and walker.get_attribute("aria-valuenow") == "1"
    walker.press("End")
    assert words.inner_text().startswith("Trial 31:")
    walker.press("Tab")
    assert not words.inner_text() and seen.locator(".brushed .pointed").count() == 0


def test_ranges_that_no_trial_fits_can_be_taken_back(seen):
    """The page fails the test if a script of it raises an error."""
    address = seen.url.partition("?")[0]
    seen.goto(f"{address}?from.m.loss=900")
    seen.get_by_text("trials are inside of all ranges").wait_for()
    assert numbers(seen) == []
    handle(seen, "loss", "from").press("Escape")
    seen.wait_for_url(lambda url: "m.loss" not in url)
    assert numbers(seen)


def test_the_tabs_keep_the_ranges_that_were_brushed(seen):
    handle(seen, "loss", "to").press("PageDown")
    seen.wait_for_url(lambda url: "to.m.loss=" in url)
    seen.get_by_text("trials are inside of all ranges").wait_for()
    kept = len(numbers(seen))
    seen.get_by_role("link", name="Timeline").click()
    seen.wait_for_url("**/timeline?*to.m.loss=*")
    seen.get_by_text("trials are inside of all ranges").wait_for()
    seen.get_by_role("link", name="Overview").click()
    seen.wait_for_url("**/?*to.m.loss=*")
    assert len(numbers(seen)) == kept


def test_the_metric_is_chosen_by_a_link_without_a_reload(seen, live_server, other):
    seen.goto(f"{live_server.url}/studies/{other.pk}/")
    seen.evaluate("window.same = true")
    seen.locator("#parallel").get_by_role("link", name="speed", exact=True).click()
    seen.get_by_text("the best one by speed").wait_for()
    assert seen.evaluate("window.same") and "metric=speed" in seen.url
    seen.get_by_label("Across").select_option("size")
    seen.get_by_label("Upwards").select_option("loss")
    seen.get_by_role("button", name="Draw", exact=True).click()
    seen.get_by_role("heading", name="loss over size").wait_for()
    seen.get_by_role("link", name="Parameters", exact=True).click()
    seen.get_by_role("heading", name="speed over each parameter").wait_for()
    assert "front.across=size" in seen.url


def test_studies_are_ticked_and_compared_by_keys(seen, live_server, filled, other):
    seen.goto(f"{live_server.url}/studies/")
    for each in (filled, other):
        seen.locator(f"#tick-{each.pk}").focus()
        seen.keyboard.press("Space")
    seen.get_by_role("button", name="Compare", exact=True).focus()
    seen.keyboard.press("Enter")
    seen.wait_for_url("**/studies/compare?*")
    assert seen.locator("path.curve-1").count() >= 1 and seen.locator("path.curve-2").count() >= 1


@in_each_look
def test_the_pages_are_accessible_and_fit(seen, live_server, filled, other, width, theme):
    seen.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    seen.set_viewport_size({"width": width, "height": 900})
    page = f"/studies/{filled.pk}/"
    for name, address in {
        "list": "/studies/",
        "study": page,
        "ranges": f"{page}?from.p.lr=0.1&from.p.kind=adam&to.p.kind=adam&to.m.loss=much",
        "parameters": f"{page}parameters",
        "curves": f"{page}curves?from.p.lr=0.05",
        "scatter": f"{page}scatter",
        "timeline": f"{page}timeline",
        "compare": f"/studies/compare?study={filled.pk}&study={other.pk}",
        "spec": f"{page}spec",
        "new": "/studies/new?sample",
        "several": f"/studies/{other.pk}/?metric=speed",
        "json": "/studies/new?sample&as=json",
    }.items():
        seen.goto(live_server.url + address)
        if name == "parameters":
            seen.locator("#study-contour svg").wait_for()
        if folder := os.environ.get("SHOTS"):
            seen.screenshot(path=f"{folder}/study-{name}-{width}-{theme}.png", full_page=True)
        assert_accessible(seen)
        assert seen.evaluate("document.documentElement.scrollWidth") <= width, name


def test_without_scripts_the_trials_are_sorted_by_a_link(chromium, live_server, browser, filled):
    context = chromium.new_context(java_script_enabled=False)
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
    page = context.new_page()
    page.goto(f"{live_server.url}/studies/{filled.pk}/")
    page.get_by_role("link", name="loss", exact=True).click()
    page.get_by_text("Ranges and axes").click()
    page.locator("[name='to.m.loss']").fill("0.04")
    page.get_by_role("button", name="Apply").click()
    assert numbers(page) == [29, 28, 27, 26, 25]
    page.get_by_role("link", name="Show all trials").click()
    assert numbers(page)[:2] == [29, 28] and Trial.objects.filter(tuning_job=filled).count() > 5
    page.get_by_role("link", name="Logarithmic scale loss").click()
    page.get_by_role("link", name="Linear scale loss").click()
    assert "results.m.loss=linear" in page.url
    context.close()


def test_the_contour_is_fetched_and_drawn_over_the_chosen_parameters(seen, live_server, filled):
    seen.goto(f"{live_server.url}/studies/{filled.pk}/parameters")
    contour = seen.locator("#study-contour")
    contour.locator("svg").wait_for()
    across = seen.get_by_label("Across")
    before = across.input_value()
    other = {"lr": "kind", "kind": "lr"}[before]
    across.select_option(other)
    seen.get_by_label("Upwards").select_option(before)
    seen.get_by_role("button", name="Draw", exact=True).click()
    seen.wait_for_url(lambda url: f"across={other}" in url)
    contour.locator("svg").wait_for()
    assert seen.get_by_label("Across").input_value() == other
    seen.reload()
    contour.locator("svg").wait_for()
    assert seen.get_by_label("Across").input_value() == other
