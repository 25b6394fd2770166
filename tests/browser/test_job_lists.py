"""The list of jobs and the queue in a browser: sorting, paging, selecting many jobs, without the product's sockets."""

from __future__ import annotations

import os

import pytest
from django.conf import settings
from django.utils import timezone

from jobs import services
from jobs.models import Job
from tests.browser.looks import in_each_look
from tests.harness.accessibility import assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_pipeline, document

__all__ = ["browser", "cast", "project"]


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def jobs(transactional_db, cast, project):
    a_host(gpus=4)
    waiting = [
        services.submit(
            project, cast.bob, {**document(f"bert-{n}"), "labels": {"team": "nlp"}}, "", None, timezone.now()
        )
        for n in range(4)
    ]
    Job.objects.filter(pk=waiting[0].pk).update(
        priority=100, gpu_count=8, reason="Needs 8 GPUs; 3 are free.", earliest_start_at=timezone.now()
    )
    a_job(project, cast.bella, name="resnet", gpu_count=2, labels={"team": "vision", "stage": ""})
    return waiting


@pytest.fixture
def seen(page, live_server, browser, jobs):
    """The page of a browser in which Bob is logged in."""
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.goto(f"{live_server.url}/jobs/")
    return page


def names(page):
    return page.locator("tbody .name").all_inner_texts()


def test_heads_of_columns_sort_and_labels_filter(seen):
    seen.get_by_role("link", name="GPUs").last.click()
    seen.wait_for_url("**/jobs/?sort=-gpus")
    assert names(seen)[:2] == ["bert-0", "resnet"]
    assert seen.locator("th[aria-sort=descending]").inner_text().startswith("GPUs")
    seen.get_by_role("link", name="team=vision").click()
    seen.wait_for_url("**label=team%3Dvision**")
    assert names(seen) == ["resnet"] and "1 job" in seen.locator("#jobs-live").inner_text()
    assert seen.get_by_label("Labels").input_value() == "team=vision"


def test_ticked_jobs_are_cancelled_after_the_number_was_confirmed(seen):
    seen.get_by_label("Select bert-1").check()
    seen.get_by_label("Select bert-3").check()
    seen.get_by_label("Select resnet").check()
    seen.get_by_role("button", name="Cancel", exact=True).click()
    assert "Left out: 1 job that you may not change." in seen.locator("main").inner_text()
    seen.get_by_role("button", name="Cancel 2 jobs").click()
    seen.get_by_text("2 jobs are cancelled.").wait_for()
    assert seen.locator("tr", has_text="Cancelled").count() == 2
    assert set(Job.objects.filter(state="CANCELLED").values_list("display_name", flat=True)) == {
        "bert-1",
        "bert-3",
    }


def test_a_box_stays_ticked_when_the_list_is_painted_again(seen):
    seen.get_by_label("Select bert-1").check()
    seen.evaluate(
        """async () => {
          const { Idiomorph } = await import(document.querySelector("script[src*='live']").src
            .replace(/live[^/]*$/, "npm/idiomorph/idiomorph.esm.js"));
          const old = document.getElementById("jobs-live");
          const fresh = old.cloneNode(true);
          fresh.querySelectorAll("input").forEach((box) => { box.checked = false; box.removeAttribute("checked"); });
          Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", callbacks: {
            beforeNodeMorphed: (node) => !(node instanceof Element && node.matches("[data-keep]")) } });
        }"""
    )
    assert seen.get_by_label("Select bert-1").is_checked()


@in_each_look
def test_the_pages_are_accessible_and_fit(seen, live_server, width, theme, tmp_path):
    seen.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    seen.set_viewport_size({"width": width, "height": 900})
    for job in Job.objects.filter(display_name__startswith="bert").order_by("pk")[:2]:
        a_pipeline(job, "digits")
    model = "/jobs/models/default/digits/"
    for address in ("/jobs/?label=team", "/jobs/queue", "/jobs/pipelines/", "/jobs/models/", model):
        seen.goto(live_server.url + address)
        assert_accessible(seen)
        assert seen.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("SHOTS"):
            seen.screenshot(path=f"{folder}/{address.strip('/').replace('/', '-')[:9]}-{width}-{theme}.png")
    seen.goto(live_server.url + "/jobs/")
    seen.get_by_label("Select bert-1").check()
    seen.get_by_role("button", name="Label", exact=True).click()
    assert_accessible(seen)
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("SHOTS"):
        seen.screenshot(path=f"{folder}/bulk-{width}-{theme}.png")
