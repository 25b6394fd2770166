"""The new-job form in a browser: the summary follows, pasted lines become rows, secrets stay out of pages."""

from __future__ import annotations

import os

import pytest
from django.conf import settings
from playwright.sync_api import expect

from jobs.models import Job, JobSecret, Quota
from jobs.secrets import of_jobs
from tests.browser.looks import in_each_look
from tests.browser.test_job_lists import database_beside_the_browser
from tests.harness.accessibility import WCAG22, assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_template

__all__ = ["browser", "cast", "database_beside_the_browser", "project"]

PASTE = """(field, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text", text);
  field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""


def is_accessible(page):
    """As test_first_run judges the pages of the first minutes, also this one."""
    assert_accessible(page, (*WCAG22, "best-practice"))


@pytest.fixture
def form(page, live_server, transactional_db, browser, cast, project):
    """The form in a browser in which Bob is logged in."""
    a_host("h1", gpus=8, cpus=64)
    Quota.objects.create(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=6)
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.set_viewport_size({"width": 1280, "height": 900})
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if "Content Security Policy" in said.text else None,
    )
    page.goto(f"{live_server.url}/jobs/new")
    yield page
    assert page.problems == []


def fill(form):
    form.get_by_label("Name", exact=True).fill("train")
    primary = form.locator("#pool0")
    primary.get_by_label("Command").check()
    primary.get_by_label("Program", exact=True).fill("torchrun --nproc-per-node 2 train.py")
    primary.get_by_label("GPU type").fill("NVIDIA_L4")
    primary.get_by_label("GPUs for each replica").fill("2")
    return primary


def test_the_summary_follows_each_change_and_three_pools_need_one_program(form):
    fill(form)
    line, body = form.locator("#summary-line"), form.locator("#summary-body")
    expect(line).to_contain_text("1 replica · 2 GPUs · It could start now.")
    expect(body).to_contain_text("project default")
    workers = form.locator("#pool1")
    workers.get_by_label("Use this pool").check()
    assert workers.get_by_label("Same program as the primary").is_checked()
    assert not workers.get_by_label("Program", exact=True).is_visible()
    workers.get_by_label("Replicas").fill("3")
    workers.get_by_label("GPU type").fill("NVIDIA_L4")
    workers.get_by_label("GPUs for each replica").fill("2")
    expect(line).to_contain_text("4 replicas · 8 GPUs · It would be refused")
    expect(body).to_contain_text("The quota of NVIDIA_L4 at once is 6 for project default")
    workers.get_by_label("Replicas").fill("2")
    expect(line).to_contain_text("3 replicas · 6 GPUs · It could start now.")
    evaluators = form.locator("#pool2")
    evaluators.get_by_label("Use this pool").check()
    expect(line).to_contain_text("4 replicas · 6 GPUs")
    body.get_by_text("curl", exact=True).click()
    expect(body.locator("pre:visible")).to_contain_text('"torchrun",')
    form.get_by_role("button", name="Submit", exact=True).click()
    form.wait_for_url("**/jobs/*/")
    pools = Job.objects.get().spec["workerPoolSpecs"]
    assert len(pools) == 3 and len({str(pool["containerSpec"]) for pool in pools}) == 1


def test_pasted_lines_become_rows_and_a_secret_stays_in_the_browser(form):
    primary = fill(form)
    names = primary.locator('[name="pool0-env-name"]')
    before = names.count()
    names.nth(1).evaluate(PASTE, "export LR=0.1\nHF_TOKEN='hf_very-secret'\n")
    expect(names).to_have_count(before + 2)
    assert [names.nth(n).input_value() for n in (1, 2)] == ["LR", "HF_TOKEN"]
    assert names.nth(2).get_attribute("aria-label") == "Name of variable 3"
    row = primary.locator(".env-row").nth(2)
    expect(primary.get_by_role("button", name="Make it secret")).to_have_count(1)
    row.get_by_role("button", name="Make it secret").click()
    assert row.locator("select").input_value() == "secret"
    # The form is replaced by its checked copy, which comes without the value.
    form.get_by_role("button", name="Would it start now?").click()
    form.locator(".verdict").get_by_text("It could start now.").wait_for()
    expect(row.locator("textarea")).to_have_value("hf_very-secret")
    # What was typed is in the field only: the page that came has no such text.
    assert "hf_very-secret" not in form.content()
    form.get_by_role("button", name="Submit", exact=True).click()
    form.wait_for_url("**/jobs/*/")
    assert of_jobs.values_of(JobSecret.objects.get().job_id) == ["hf_very-secret"]


def test_a_pasted_value_of_several_lines_is_refused_with_the_cure(form):
    names = form.locator('#pool0 [name="pool0-env-name"]')
    names.nth(1).evaluate(PASTE, 'KEY="-----BEGIN\nAAAA\n-----END"')
    expect(form.locator("#pool0 [data-pasted-problem]")).to_contain_text("the quote of KEY is not closed")


def test_a_question_about_a_shell_is_answered_with_a_button(form):
    fill(form).get_by_label("Program", exact=True).fill("python3 train.py | tee log")
    form.get_by_label("Name", exact=True).press("Enter")
    form.get_by_text("means something to a shell only").first.wait_for()
    assert not Job.objects.exists()
    is_accessible(form)
    form.get_by_role("button", name="Run it by bash").click()
    form.wait_for_url("**/jobs/*/")
    command = Job.objects.get().spec["workerPoolSpecs"][0]["containerSpec"]["command"]
    assert command == ["bash", "-c", "python3 train.py | tee log"]


@in_each_look
def test_the_form_is_accessible_and_fits_with_errors_secrets_and_the_summary_open(
    form, live_server, width, theme
):
    form.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    form.set_viewport_size({"width": width, "height": 900})
    form.reload()
    assert form.locator("#summary").evaluate("(fold) => fold.open") == (width > 400)
    primary = fill(form)
    primary.locator('[name="pool0-env-name"]').nth(1).fill("HF_TOKEN")
    primary.locator(".env-row").nth(1).locator("select").select_option("secret")
    primary.locator('[name="pool0-env-name"]').nth(2).fill("WANDB_KEY")
    primary.locator(".env-row").nth(2).locator("select").select_option("stored")
    form.locator("#pool1").get_by_label("Use this pool").check()
    form.get_by_label("Time limit").fill("soon")
    form.get_by_role("button", name="Would it start now?").click()
    form.get_by_text("Nothing was submitted.").wait_for()
    form.locator("#summary").evaluate("(fold) => { fold.open = true; }")
    form.locator("#summary-body details.code").first.locator("summary").click()
    is_accessible(form)
    assert form.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("SHOTS"):
        form.screenshot(path=f"{folder}/new-job-{width}-{theme}.png", full_page=True)


def test_templates_and_the_difference_of_two_jobs_are_accessible(form, live_server, cast, project):
    template = a_template(project, "nightly")
    first = a_job(project, cast.bob)
    second = a_job(project, cast.bob, name="changed", cloned_from=first.pk)
    for width in (1280, 360):
        form.set_viewport_size({"width": width, "height": 900})
        for address in ("/jobs/templates/", f"/jobs/{second.pk}/diff", f"/jobs/new?template={template.pk}"):
            form.goto(live_server.url + address)
            is_accessible(form)
            assert form.evaluate("document.documentElement.scrollWidth") <= width, address
