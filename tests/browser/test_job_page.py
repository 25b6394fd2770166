"""The page of a job of 64 replicas in a browser, from seeded rows: without the product's sockets."""

from __future__ import annotations

import os
import re
from itertools import groupby

import pytest
from django.conf import settings
from playwright.sync_api import expect

from agents.infra.texts import said
from jobs.models import Replica
from tests.harness.accessibility import assert_accessible, assert_accessible_in_both_themes
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, moved
from tests.unit.console.views.test_compare import pair
from tests.unit.console.views.test_job_tabs import many

__all__ = ["browser", "cast", "pair", "project"]

TABS = ("Overview", "Logs", "Metrics", "Shells", "Specification", "Events")


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def large(transactional_db, cast, project):
    job = a_job(project, cast.bob, replicas=64, host=a_host("gpu-north"), name="llama-64")
    for replica in job.replicas.all():
        cause = said("Started on {host}.", host=f"gpu-{replica.index}")
        moved(job, "STARTING", "RUNNING", replica.name, cause, "trainyard", "run")
    moved(job, "PENDING", "RUNNING", cause="All are up.")
    Replica.objects.filter(job=job, name="workerpool1-3").update(state="FAILED")
    return job


@pytest.fixture
def bob(page, live_server, browser):
    """A browser in which Bob is logged in."""
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.set_viewport_size({"width": 1280, "height": 800})
    return page


@pytest.fixture
def seen(bob, live_server, large):
    bob.goto(f"{live_server.url}/jobs/{large.pk}/")
    return bob


def overhang(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_the_log_is_above_the_fold_at_64_replicas(seen):
    expect(seen.locator(".cell")).to_have_count(64)
    log = seen.locator(".log-body").bounding_box()
    # Room for some lines of the log, without scrolling.
    assert log["y"] < 800 - 200, log


def test_a_cell_chooses_its_replica_for_the_log_the_events_and_the_tabs(seen):
    followed = []
    seen.route_web_socket("**/ws/jobs/**", lambda socket: followed.append(socket.url.rpartition("/")[2]))
    seen.reload()
    tabs = seen.get_by_role("navigation", name="Views of this job")
    seen.evaluate("window.stays = true")
    seen.get_by_label("Name, rank or host").fill("typed and not sent")
    for name, rank in (("workerpool1-9", 10), ("workerpool1-30", 31)):
        seen.get_by_label(re.compile(f"^{name}, rank {rank}:")).click()
        expect(seen).to_have_url(re.compile(rf"\?replica={name}$"))
        expect(seen.get_by_role("heading", name=f"Log of {name}")).to_be_visible()
        expect(seen.get_by_role("log", name=f"Output of {name}")).to_be_visible()
        expect(seen.locator(f"#cell-{name}")).to_have_attribute("aria-current", "true")
        expect(seen.locator(".cell[aria-current]")).to_have_count(1)
        expect(seen.locator(".picker summary")).to_contain_text(name)
        expect(seen.locator(".timeline")).to_contain_text(f"Started on gpu-{name.partition('-')[2]}.")
        expect(seen.locator(".timeline > li")).to_have_count(1)
        expect(tabs.get_by_role("link", name="Logs")).to_have_attribute("href", re.compile(f"/log/{name}$"))
        at = seen.locator("#live").get_attribute("ws-connect")
        assert at.endswith(f"replica%3D{name}"), at
    # On a slow machine the page may dial a replica again: these sockets send no beats.
    in_turn = [name for name, _ in groupby(followed)]
    assert seen.evaluate("window.stays") and in_turn == ["workerpool0-0", "workerpool1-9", "workerpool1-30"]
    expect(seen.get_by_label("Name, rank or host")).to_have_value("typed and not sent")
    seen.go_back()
    expect(seen.get_by_role("heading", name="Log of workerpool1-9")).to_be_visible()
    expect(seen.locator("#cell-workerpool1-9")).to_have_attribute("aria-current", "true")
    seen.go_forward()
    expect(seen.get_by_role("heading", name="Log of workerpool1-30")).to_be_visible()
    seen.get_by_role("link", name="Choose no replica").click()
    expect(seen.get_by_role("heading", name="Log of workerpool0-0")).to_be_visible()
    expect(seen.locator(".cell[aria-current]")).to_have_count(0)
    seen.locator("#cell-workerpool1-9").click()
    expect(tabs.get_by_role("link", name="Logs")).to_have_attribute("href", re.compile("/log/workerpool1-9$"))
    tabs.get_by_role("link", name="Logs").click()
    expect(seen).to_have_url(re.compile(r"/log/workerpool1-9$"))


def test_cells_are_filtered_in_place(seen):
    seen.evaluate("window.stays = true")
    seen.get_by_label("Name, rank or host").fill("workerpool1-6")
    seen.get_by_role("button", name="Show").click()
    expect(seen.locator(".cell")).to_have_count(4)
    expect(seen).to_have_url(re.compile("text=workerpool1-6"))
    seen.get_by_role("link", name="Show all").click()
    expect(seen.locator(".cell")).to_have_count(64)
    seen.get_by_role("link", name="1 failed").click()
    expect(seen.locator(".cell")).to_have_count(1)
    assert seen.evaluate("window.stays")
    seen.go_back()
    expect(seen.locator(".cell")).to_have_count(64)


def test_a_replica_is_picked_by_its_rank_or_state(seen):
    picker = seen.locator("details.picker")
    picker.locator("summary").click()
    # All of them together, and the first fifty.
    expect(picker.locator(".found a")).to_have_count(51)
    picker.get_by_label("Name, rank, host or state").fill("failed")
    expect(picker.locator(".found a")).to_have_text(["All replicas", "workerpool1-3"])
    picker.get_by_role("link", name="workerpool1-3").click()
    expect(seen.get_by_role("heading", name="Log of workerpool1-3")).to_be_visible()


def test_what_happened_is_folded_and_unfolds(seen):
    expect(seen.locator("#job-story .timeline > li")).to_have_count(3)
    seen.get_by_role("link", name="Show these 64 events one by one").click()
    expect(seen.locator("#job-events .inside")).to_have_count(64)
    assert "open=" in seen.url and seen.url.count("/events") == 1
    seen.get_by_role("link", name="Show these 64 events one by one").click()
    expect(seen.locator("#job-events .inside")).to_have_count(0)


def test_each_tab_is_accessible_and_fits_a_phone(seen):
    for tab in TABS:
        views = seen.get_by_role("navigation", name="Views of this job")
        views.get_by_role("link", name=tab).click()
        expect(views.locator("[aria-current=page]")).to_have_text(tab)
        assert_accessible_in_both_themes(seen)
        seen.set_viewport_size({"width": 360, "height": 740})
        assert overhang(seen) <= 0, tab
        seen.set_viewport_size({"width": 1280, "height": 800})


def test_a_thousand_cells_fit_and_one_is_chosen_without_a_new_page(
    bob, live_server, transactional_db, cast, project
):
    job = many(project, cast, 1000, a_host("gpu-north"))
    bob.goto(f"{live_server.url}/jobs/{job.pk}/")
    assert bob.locator(".log-body").bounding_box()["y"] < 800 - 180
    bob.evaluate("window.stays = true")
    bob.locator("#cell-workerpool1-900").click()
    expect(bob.get_by_role("heading", name="Log of workerpool1-900")).to_be_visible()
    expect(bob.locator("#replica-workerpool1-900")).to_be_visible()
    assert bob.evaluate("window.stays")
    assert_accessible(bob)


def test_a_comparison_is_accessible_and_fits_a_phone(bob, live_server, transactional_db, pair):
    bob.goto(f"{live_server.url}/jobs/compare?job={pair[0].pk}&job={pair[1].pk}")
    expect(bob.locator(".chart path")).not_to_have_count(0)
    assert_accessible_in_both_themes(bob)
    bob.set_viewport_size({"width": 360, "height": 740})
    assert overhang(bob) <= 0
