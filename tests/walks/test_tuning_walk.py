"""A person who tunes: the sample study by the form, its trials live, brushed, the best one with its curve; then a model
that is trained."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.needs_namespaces]

TRIALS = 12
PATIENCE_MS = 240_000


@pytest.mark.walk(2)
def test_a_tuner(walk):
    walk.begin("bob")
    submits_the_sample(walk)
    watches_the_trials(walk)
    brushes_the_best(walk)
    looks_at_the_parameters(walk)
    follows_the_best_trial(walk)
    trains_a_model(walk)


def submits_the_sample(walk):
    page = walk.page
    walk.open("/studies/new?sample", "new study")
    page.locator("[name=max_trials]").fill(str(TRIALS))
    page.locator("[name=parallel_trials]").fill("4")
    # The summary follows what is typed.
    expect(page.locator("#study-summary")).to_contain_text(str(TRIALS))
    page.locator("#new-job .button.main").click()
    page.wait_for_url(re.compile(r"/studies/\d+/$"))
    walk.look("study at its start")


def watches_the_trials(walk):
    """Nothing is loaded again: results, lines and rows come by themselves."""
    page = walk.page
    page.evaluate("window.sameVisit = true")
    expect(page.locator("#parallel [data-trial]")).to_have_count(TRIALS, timeout=PATIENCE_MS)
    expect(page.locator("#study-head [data-state=SUCCEEDED]")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#trials tbody tr")).to_have_count(TRIALS)
    assert page.evaluate("window.sameVisit")
    walk.look("study that is over")


def brushes_the_best(walk):
    page = walk.page
    handle = page.locator("[data-handle='to.m.loss']")
    handle.focus()
    for _ in range(5):
        page.keyboard.press("PageDown")
    page.wait_for_url(re.compile(r"to\.m\.loss="))
    # The line of the outermost result is outside, that of the best one is inside.
    expect(page.locator("#parallel .line.best")).to_have_count(1)
    expect(page.locator("#parallel .line.out").first).to_be_attached()
    rows = page.locator("#trials tbody tr")
    expect(rows).not_to_have_count(TRIALS)
    assert rows.count() == TRIALS - page.locator("#parallel .line.out").count()
    walk.look("study with a range")


def looks_at_the_parameters(walk):
    page = walk.page
    page.locator("#study-tabs a[href*='/parameters']").click()
    expect(page.locator("#study-parameters .importance-bar")).to_have_count(2)
    expect(page.locator("#study-contour .shade").first).to_be_attached()
    walk.look("parameters of a study")


def follows_the_best_trial(walk):
    page = walk.page
    page.locator("#study-tabs a").first.click()
    page.locator("section[aria-labelledby=best-title] a").first.click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    page.locator(".tabs a[href*='/metrics']").click()
    expect(page.locator("figure", has_text="loss").locator("svg path, canvas").first).to_be_attached()
    walk.look("curve of the best trial")


def trains_a_model(walk):
    page = walk.page
    walk.open("/jobs/pipelines/new", "train new model")
    page.locator("[name=display_name]").fill("digits")
    page.locator("[name=base_output_directory]").fill("gs://runs/digits")
    page.locator("[name=code-source][value=stored]").check()
    page.locator("[name=pool0-kind][value=bash]").check()
    page.locator("#id_pool0-program").fill("true")
    page.locator("#id_pool0-machine_type").fill("tiny")
    page.locator(".sticky button[value=check]").click()
    # It says at which field the code is missing.
    expect(page.locator("#draft > .verdict .tone-bad a")).to_have_count(1)
    walk.look("train new model without its code")
    page.locator("[name=code-source][value=none]").check()
    page.locator(".sticky button[value=check]").click()
    expect(page.locator("#draft > .verdict .tone-bad")).to_have_count(0)
    walk.look("train new model checked")
    page.locator(".sticky button[value=submit]").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    walk.state("SUCCEEDED")
    walk.look("a trained model")
    for path in ("/jobs/pipelines/", "/jobs/models/", "/jobs/templates/", "/studies/"):
        walk.open(path, path.strip("/").replace("/", " "))
