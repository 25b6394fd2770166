"""What the hosts of a job prepare, on its page in a browser: it fits, and it goes on live while somebody reads it."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from agents.infra.texts import said
from console.parts import jobs as parts
from console.parts.part import Place
from jobs.models import Preparation
from tests.browser.looks import in_each_look
from tests.browser.test_job_page import bob, database_beside_the_browser, overhang
from tests.browser.test_new_job import is_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.console.views.test_preparations import prepare

__all__ = ["bob", "browser", "cast", "database_beside_the_browser", "project"]

GB = 1_000_000_000
OUTPUT = (
    "Copying blob 8a1e25ce7c4f done\nCopying blob f3ead5e8856b [====>-----] 2.1GiB / 9.3GiB\n" + "x" * 200
)


@pytest.fixture
def job(transactional_db, cast, project):
    job = a_job(project, cast.bob, "PENDING", host=a_host("gpu-north-with-a-long-name-07"), name="llama-64")
    began = timezone.now() - timedelta(seconds=90)
    image = said(
        "the image {image}", image="registry.example.com:5000/lab/teams/vision/train-llama:2026-11-23"
    )
    rows = (
        {
            "title": image,
            "phase": "WORKING",
            "done": 2 * GB,
            "total": 9 * GB,
            "unit": "bytes",
            "tail": OUTPUT,
        },
        {
            "title": said("Python packages"),
            "kind": "environment",
            "phase": "WORKING",
            "tail": "Collecting torch",
        },
        {"title": said("the code of {revision}", revision="main"), "kind": "tree", "phase": "WANTED"},
        {
            "title": image,
            "phase": "FAILED",
            "message": "Error: manifest unknown: " + "long words " * 30,
            "tail": OUTPUT,
        },
        {"title": image, "phase": "READY"},
    )
    for number, row in enumerate(rows):
        prepare(job, a_host(f"gpu-{number}"), key=str(number), began_at=began, **row)
    return job


@pytest.fixture
def sockets(bob, live_server, job):
    opened = []
    bob.route_web_socket("**/ws/live**", lambda socket: opened.append(socket))
    bob.goto(f"{live_server.url}/jobs/{job.pk}/")
    expect(bob.locator("#preparations-title")).to_be_visible()
    return opened


def follow(sockets, cast, job):
    """What the socket of the page would send now."""
    part = next(part for part in parts.JOB_OVERVIEW if part.name == "job-preparations")
    sockets[-1].send(part.render(cast.bob, Place.of("job", {"job_id": job.pk}, ""), None))


def test_the_panel_goes_on_live_and_what_is_open_stays_open(bob, sockets, cast, job):
    row = Preparation.objects.get(key="0")
    line = bob.locator(f"#preparation-{row.pk}")
    expect(line.locator("progress")).to_have_attribute("value", "22")
    line.locator("summary").click()
    expect(line.locator("pre")).to_contain_text("2.1GiB / 9.3GiB")
    Preparation.objects.filter(pk=row.pk).update(
        done=6 * GB, tail="Copying blob [=======>--] 6.0GiB / 9.3GiB"
    )
    follow(sockets, cast, job)
    expect(line.locator("progress")).to_have_attribute("value", "67")
    expect(line.locator("pre")).to_be_visible()
    expect(line.locator("pre")).to_contain_text("6.0GiB")
    Preparation.objects.filter(pk=row.pk).update(phase="READY")
    follow(sockets, cast, job)
    expect(line.locator("progress")).to_have_count(0)
    expect(bob.locator("#job-preparations")).to_contain_text("2 of 5 are ready")
    Preparation.objects.update(phase="READY")
    follow(sockets, cast, job)
    expect(bob.locator("#preparations-title")).to_have_count(0)
    expect(bob.locator("#job-preparations")).to_be_hidden()


@in_each_look
def test_the_panel_is_accessible_and_fits(bob, live_server, sockets, job, width, theme):
    bob.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    bob.set_viewport_size({"width": width, "height": 900})
    bob.reload()
    for summary in bob.locator("#job-preparations summary").all():
        summary.click()
    is_accessible(bob)
    assert overhang(bob) <= 0
    if folder := os.environ.get("SHOTS"):
        bob.locator("#job-preparations").screenshot(path=f"{folder}/preparations-{width}-{theme}.png")
