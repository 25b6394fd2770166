"""The page Train new model in a browser: its steps start a training; it is accessible, on a phone, in the dark."""

from __future__ import annotations

import os

import pytest
from django.conf import settings
from django.utils import timezone

from jobs.models import Artifact, TrainingPipeline
from tests.browser.looks import in_each_look
from tests.harness.accessibility import WCAG22, assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_pipeline

__all__ = ["browser", "cast", "project"]


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def session(transactional_db, live_server, browser, cast):
    a_host(gpus=2)
    return {
        "name": settings.SESSION_COOKIE_NAME,
        "value": browser("bob").cookies[settings.SESSION_COOKIE_NAME].value,
        "url": live_server.url,
    }


@pytest.fixture
def train(page, live_server, session):
    page.context.add_cookies([session])
    page.goto(f"{live_server.url}/jobs/pipelines/")
    page.get_by_role("main").get_by_role("link", name="Train new model").click()
    page.wait_for_url("**/jobs/pipelines/new")
    return page


def fill_in(page):
    page.get_by_label("Name", exact=True).fill("digits")
    page.get_by_label("Output directory").fill("gs://runs/digits")
    page.get_by_label("Enable training debugging").check()
    container = page.get_by_role("group", name="Training container")
    container.get_by_label("Bash script").check()
    container.get_by_label("Program", exact=True).fill("python3 train.py")


def test_the_steps_start_a_training(train):
    method = train.get_by_role("group", name="Training method")
    assert method.get_by_label("No managed dataset").is_checked()
    assert method.get_by_label("Custom training").is_checked()
    container = train.get_by_role("group", name="Training container")
    assert container.get_by_label("Custom container").is_checked()
    assert container.get_by_label("Image").is_visible() and not container.get_by_label("Module").is_visible()
    assert not train.get_by_label("Model that gets a version").is_visible()
    train.get_by_label("A new version of a model").check()
    assert train.get_by_label("Model that gets a version").is_visible()
    train.get_by_label("A new model").check()
    fill_in(train)
    workers = train.get_by_role("group", name="workerpool1 · Workers")
    workers.get_by_label("Use this pool").check()
    workers.get_by_label("Replicas").fill("2")
    # The summary follows.
    train.locator("#summary-body").get_by_text("3 in 2 pools").wait_for()
    train.get_by_role("button", name="Start training").last.click()
    train.wait_for_url(lambda url: "/pipelines/" not in url)
    made = TrainingPipeline.objects.get()
    assert f"/jobs/{made.job_id}/" in train.url and made.display_name == "digits"
    assert made.upload == {"displayName": "digits"} and made.job.spec["enableWebAccess"] is True
    assert [pool["replicaCount"] for pool in made.job.spec["workerPoolSpecs"]] == ["1", "2"]
    assert made.job.spec["workerPoolSpecs"][1]["containerSpec"]["command"][2] == "python3 train.py"


def test_a_check_names_what_is_missing_and_keeps_what_was_typed(train):
    train.get_by_label("Name", exact=True).fill("digits")
    train.get_by_role("button", name="Would it start now?").click()
    train.get_by_role("alert").get_by_role("link", name="Image").wait_for()
    assert train.get_by_label("Name", exact=True).input_value() == "digits"
    assert_accessible(train, WCAG22)
    assert not TrainingPipeline.objects.exists()


def test_code_is_uploaded_from_the_page_and_a_template_begins_it_again(train, tmp_path):
    archive = tmp_path / "lab.tar.gz"
    archive.write_bytes(b"code")
    fill_in(train)
    train.get_by_label("Files", exact=True).check()
    train.locator("#code-file").set_input_files(archive)
    train.locator("#code [data-code-file]").get_by_text("This is lab.tar.gz").wait_for()
    stored = Artifact.objects.get()
    train.locator("#summary-body").get_by_text(stored.sha256).first.wait_for()
    train.get_by_text("Save as a template").click()
    train.get_by_label("Name of the template").fill("nightly")
    train.get_by_role("button", name="Save", exact=True).click()
    train.locator("[data-message=success]").get_by_text("nightly").wait_for()
    train.goto(train.url.partition("/jobs/")[0] + "/jobs/templates/")
    train.get_by_role("main").get_by_role("link", name="Train new model nightly").click()
    assert train.get_by_label("Name", exact=True).input_value() == "digits"
    train.get_by_role("button", name="Start training").last.click()
    train.wait_for_url(lambda url: "/pipelines/" not in url)
    (pool,) = TrainingPipeline.objects.get().job.spec["workerPoolSpecs"]
    assert pool["trainyard"]["code"] == {"artifact": stored.sha256}


def tab_to(page, target):
    """Press Tab until the target has the focus: who has no pointer gets there, and sees where they are."""
    for _step in range(150):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            assert target.evaluate("element => element.matches(':focus-visible')")
            return
    raise AssertionError(f"Tab does not lead to {target}.")


def test_a_training_is_started_by_keys_alone(page, live_server, session):
    page.context.add_cookies([session])
    page.goto(f"{live_server.url}/jobs/pipelines/")
    main = page.get_by_role("main")
    tab_to(page, main.get_by_role("link", name="Train new model"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/pipelines/new")
    tab_to(page, page.get_by_label("Name", exact=True))
    page.keyboard.type("digits")
    tab_to(page, page.get_by_label("Output directory"))
    page.keyboard.type("gs://runs/digits")
    tab_to(page, page.get_by_label("Enable training debugging"))
    page.keyboard.press("Space")
    container = page.get_by_role("group", name="Training container")
    tab_to(page, container.get_by_label("Custom container"))
    while not container.get_by_label("Bash script").is_checked():
        page.keyboard.press("ArrowRight")
    tab_to(page, container.get_by_label("Program", exact=True))
    page.keyboard.type("python3 train.py")
    tab_to(
        page, page.get_by_role("group", name="workerpool2 · Parameter servers").get_by_label("Use this pool")
    )
    page.keyboard.press("Space")
    assert page.get_by_label("Use this pool").nth(1).is_checked()
    page.keyboard.press("Space")
    tab_to(page, page.get_by_role("button", name="Start training").last)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/pipelines/" not in url)
    made = TrainingPipeline.objects.get()
    assert made.display_name == "digits" and made.job.spec["enableWebAccess"] is True
    # The page of the job leads back.
    tab_to(page, page.get_by_role("main").get_by_role("link", name="digits", exact=True).first)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/pipelines/?*#pipeline-{made.pk}")
    page.locator(f"#pipeline-{made.pk}").wait_for()


def test_models_and_pipelines_are_used_by_keys_alone(page, live_server, session, project, cast):
    job = a_job(project, cast.bob, state="SUCCEEDED", ended_at=timezone.now(), name="train")
    a_pipeline(job, "digits")
    a_pipeline(a_job(project, cast.bob, state="SUCCEEDED", ended_at=timezone.now(), name="again"), "digits")
    page.context.add_cookies([session])
    page.goto(f"{live_server.url}/jobs/models/")
    main = page.get_by_role("main")
    tab_to(page, main.get_by_role("link", name="digits", exact=True))
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/models/default/digits/")
    tab_to(page, main.get_by_role("button", name="Make it the default 2"))
    page.keyboard.press("Enter")
    page.get_by_text("Version 2 is the default now.").wait_for()
    tab_to(page, page.locator("#version-1").get_by_role("link", name="train-pipeline"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/pipelines/?*")
    tab_to(page, main.get_by_role("link", name="digits, 1"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/models/default/digits/#version-1")
    tab_to(page, page.locator("#version-1").get_by_role("link", name="gs://staging/digits/model"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job.pk}/outputs/")


def test_an_image_of_the_reducers_brings_the_machine_type_that_is_recommended(train):
    pool = train.get_by_role("group", name="workerpool2 · Parameter servers")
    pool.get_by_label("Use this pool").check()
    pool.get_by_label("Same program as the primary").uncheck()
    pool.get_by_label("Custom container").check()
    image = "europe-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
    pool.get_by_label("Image", exact=True).fill(image)
    pool.get_by_label("Image", exact=True).press("Tab")
    assert pool.get_by_label("Machine type").input_value() == "n1-highcpu-16"
    pool.get_by_label("Machine type").fill("host")
    pool.get_by_label("Image", exact=True).fill(image.replace("europe", "us"))
    pool.get_by_label("Image", exact=True).press("Tab")
    assert pool.get_by_label("Machine type").input_value() == "host"
    assert pool.get_by_label("Numbers on the wire").is_visible()


@in_each_look
def test_the_page_is_accessible_and_fits(train, live_server, project, cast, width, theme):
    a_pipeline(a_job(project, cast.bob, state="SUCCEEDED", ended_at=timezone.now(), name="train"), "digits")
    train.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    train.set_viewport_size({"width": width, "height": 900})
    for name, address in {
        "train": "/jobs/pipelines/new",
        "pipelines": "/jobs/pipelines/",
        "models": "/jobs/models/",
        "model": "/jobs/models/default/digits/",
    }.items():
        train.goto(live_server.url + address)
        if folder := os.environ.get("SHOTS"):
            train.screenshot(path=f"{folder}/{name}-{width}-{theme}.png", full_page=True)
        assert_accessible(train, WCAG22)
        assert train.evaluate("document.documentElement.scrollWidth") <= width, name


def test_without_scripts_the_page_starts_a_training(chromium, live_server, session):
    context = chromium.new_context(java_script_enabled=False)
    context.add_cookies([session])
    page = context.new_page()
    page.goto(f"{live_server.url}/jobs/pipelines/new")
    fill_in(page)
    page.get_by_role("button", name="Start training").last.click()
    page.wait_for_url(lambda url: "/pipelines/" not in url)
    assert TrainingPipeline.objects.get().job.spec["enableWebAccess"] is True
    context.close()
