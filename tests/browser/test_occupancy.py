"""The occupancy in a browser: lanes of hosts, lanes of GPUs, dark and light, wide and narrow."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from jobs.models import HostMaintenance, Run
from tests.browser.test_job_lists import browser, cast, database_beside_the_browser, project
from tests.harness.accessibility import violations
from tests.unit.console.views.example_rows import a_host, a_job, a_run

__all__ = ["browser", "cast", "database_beside_the_browser", "project"]


@pytest.fixture
def seen(page, live_server, browser, transactional_db, cast, project):
    now = timezone.now()
    hosts = [a_host(name=f"gpu-{letter}", gpus=8, status_since=now - timedelta(days=9)) for letter in "abc"]
    HostMaintenance.objects.create(host=hosts[1], cordoned=True, cordoned_at=now - timedelta(hours=5))
    for number in range(12):
        host = hosts[number % 2]
        gpus = list(host.gpus.order_by("index"))[: number % 8 + 1]
        job = a_job(project, cast.bob, name=f"bert-{number}")
        run = a_run(job, job.replicas.get(), host, gpu_uuids=[gpu.uuid for gpu in gpus])
        since = now - timedelta(hours=24 - 2 * number)
        Run.objects.filter(pk=run.pk).update(
            created_at=since,
            started_at=since,
            released_at=since + timedelta(hours=2) if number < 10 else None,
        )
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.goto(f"{live_server.url}/hosts/occupancy")
    return page


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_from_all_hosts_to_the_job_that_held_a_gpu(seen):
    assert seen.locator(".lane").count() == 3 and violations(seen) == [] and fits(seen)
    seen.get_by_role("link", name="gpu-a").click()
    seen.wait_for_selector("h2:has-text('gpu-a')")
    assert "host=gpu-a" in seen.url and seen.locator(".lane").count() == 8
    assert violations(seen) == []
    bar = seen.locator(".lane").first.locator("svg a").first
    assert "bert-0 · bob" in bar.get_attribute("aria-label")
    bar.focus()
    seen.keyboard.press("Enter")
    seen.wait_for_selector("h1:has-text('bert-0')")


def test_it_fits_a_phone_in_the_dark_and_has_a_table(seen):
    seen.set_viewport_size({"width": 360, "height": 800})
    seen.emulate_media(color_scheme="dark")
    assert fits(seen) and violations(seen) == []
    seen.get_by_role("link", name="As a table").click()
    seen.wait_for_selector("table")
    assert "view=table" in seen.url and fits(seen) and violations(seen) == []
    seen.get_by_role("link", name="Month").click()
    seen.wait_for_selector("a[aria-current]:has-text('Month')")
    assert "span=month" in seen.url and "view=table" in seen.url


def test_the_keyboard_stays_where_it_is_while_the_page_changes(seen):
    seen.get_by_role("link", name="Week").focus()
    seen.keyboard.press("Enter")
    seen.wait_for_selector("a[aria-current]:has-text('Week')")
    focused = "document.activeElement.textContent.trim()"
    seen.wait_for_function(f"{focused} == 'Week'")
    seen.get_by_role("link", name="Earlier").focus()
    seen.keyboard.press("Enter")
    seen.wait_for_selector("#later")
    seen.wait_for_function(f"{focused} == 'Earlier'")
    assert "at=" in seen.url and "span=week" in seen.url
