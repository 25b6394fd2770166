"""A person whose workers send their gradients to reducers: the form brings code to those that train alone, and the tab
Metrics says by itself how busy the reducers are."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from jobs.rules.spec.reduction import IMAGES
from tests.flows.test_brought import Storage, archive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.needs_namespaces]

TRAIN = """import os
os.execvp("reduced-training", ["reduced-training"])
"""
PATIENCE_MS = 240_000


@pytest.mark.walk(1)
def test_a_reducer(walk):
    walk.begin("bob")
    job = submits_code_beside_reducers(walk, Storage(walk.yard.client).artifact(archive(TRAIN)))
    try:
        sees_how_busy_they_are(walk, job)
    finally:
        walk.yard.client.cancel(job)
    walk.yard.client.wait(job, "CANCELLED")


def submits_code_beside_reducers(walk, artifact):
    page = walk.page
    walk.open("/jobs/new", "new job")
    page.locator("[name=display_name]").fill("reduced")
    page.locator("[name=code-source][value=stored]").check()
    page.locator("[name=code-stored]").fill(artifact)
    page.locator("[name=pool0-kind][value=bash]").check()
    page.locator("#id_pool0-program").fill("python3 train.py")
    # The second pool runs the same as the first.
    page.locator("[name=pool1-on]").check()
    page.locator("[name=pool2-on]").check()
    page.locator("[name=pool2-same]").uncheck()
    page.locator("[name=pool2-kind][value=image]").check()
    page.locator("#id_pool2-image").fill(IMAGES[0])
    page.locator(".sticky button[value=check]").click()
    expect(page.locator("#draft > .verdict .note")).not_to_have_count(0)
    expect(page.locator("#draft > .verdict .tone-bad")).to_have_count(0)
    walk.look("code beside reducers")
    page.locator(".sticky button[value=submit]").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    return walk.job_of_page()


def sees_how_busy_they_are(walk, job):
    page = walk.page
    walk.state("RUNNING")
    page.locator(".tabs a[href*='/metrics']").click()
    page.evaluate("window.sameVisit = true")
    says = page.locator("#job-reports > p")
    expect(says).to_contain_text("Reduction Server")
    # So many megabytes, and two shares of the time.
    expect(says).to_have_text(re.compile(r"\d+ ?MB.*\d+ ?%.*\d+ ?%", re.S), timeout=PATIENCE_MS)
    expect(page.locator("figure", has_text="reduction/reducer_idle_percent").first).to_be_visible()
    assert page.evaluate("window.sameVisit")
    walk.look("metrics of reducers")
