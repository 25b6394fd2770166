"""What a job brings, chosen in a browser: a folder is packed there, by the rules that the command line has."""

from __future__ import annotations

import base64
import io
import os
import random
import tarfile

import pytest
from playwright.sync_api import expect

from console.client.ignore_rules import is_left_out, rules_of
from jobs.artifacts import artifacts
from jobs.models import Artifact, Job
from tests.browser.looks import in_each_look
from tests.browser.static_site import page_of, served
from tests.browser.test_new_job import database_beside_the_browser, fill, form, is_accessible
from tests.unit.console.client.test_ignore_rules import NAMES, RULES
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "database_beside_the_browser", "form", "project"]

JUDGE = """async (cases) => {
  const { isLeftOut, rulesOf } = await import("/static/storage/ignore_rules.js");
  return cases.map(([rules, inner, paths]) => {
    const all = [...rulesOf(rules), ...rulesOf(inner, "a")];
    return paths.map(([path, isFolder]) => isLeftOut(path, isFolder, all));
  });
}"""
PACK = """async (files) => {
  const { packed } = await import("/static/storage/packing.js");
  const tree = { name: "code", files: files.map(([path, text]) => [path, new File([text], "x")]) };
  const bytes = new Uint8Array(await (await packed(tree)).blob.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


@pytest.fixture(scope="module")
def site():
    with served(page_of("Code", [], "page.js", "")) as address:
        yield address


def test_random_rules_leave_out_the_same_in_the_browser_and_on_the_command_line(page, site):
    page.goto(site)
    chosen = random.Random(1)
    cases = []
    for _ in range(300):
        rules, inner = chosen.choices(RULES, k=4), chosen.choices(RULES, k=2)
        paths = [
            ("/".join(chosen.choices(NAMES, k=chosen.randint(1, 3))), chosen.random() < 0.5)
            for _ in range(20)
        ]
        cases.append([rules, inner, paths])
    expected = [
        [is_left_out(path, is_folder, [*rules_of(rules), *rules_of(inner, "a")]) for path, is_folder in paths]
        for rules, inner, paths in cases
    ]
    assert page.evaluate(JUDGE, cases) == expected
    assert {True, False} == {answer for answers in expected for answer in answers}


def test_what_the_browser_packs_is_a_tar_of_the_same_bytes(page, site):
    page.goto(site)
    long = "/".join(["a-folder-with-a-long-name"] * 8)
    files = [
        ["train.py", "print(1)\n"],
        ["run.sh", "#!/bin/sh\n"],
        ["é/ü.txt", "x" * 513],
        [f"{long}/x", "y"],
    ]
    files += [[f"{'n' * length}", str(length)] for length in range(94, 104)]
    packed = page.evaluate(PACK, files)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:gz") as archive:
        found = {each.name: (each.mode, archive.extractfile(each).read().decode()) for each in archive}
    assert {name: text for name, (_, text) in found.items()} == dict(files)
    assert found["run.sh"][0] == 0o755 and found["train.py"][0] == 0o644
    page.wait_for_timeout(1100)
    page.goto(site)
    assert page.evaluate(PACK, files) == packed, "the time of day is no part of it"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "lab"
    for name, text in {
        "train.py": "print('hello')\n",
        "run.sh": "#!/bin/sh\n",
        "data/big.bin": "x" * 5000,
        "data/keep.txt": "kept",
        "a.log": "noise",
        "__pycache__/train.pyc": "no",
        ".git/config": "no",
        ".gitignore": "*.log\ndata/*\n",
        ".trainyardignore": "!data/keep.txt\n.*ignore\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_folder_is_shown_before_it_is_sent_and_becomes_the_code_of_the_job(form, folder):
    fill(form)
    form.get_by_label("Files", exact=True).check()
    code = form.locator("#code")
    form.locator("#code-folder").set_input_files(folder)
    expect(code.locator("[data-packed-line]")).to_have_text("lab: 3 files, 29 B.")
    expect(code.locator("[data-left-out] summary")).to_have_text("6 entries are left out")
    code.locator("[data-left-out] summary").click()
    left_out = code.locator("[data-left-out] li").all_inner_texts()
    assert left_out == [".git/", ".gitignore", ".trainyardignore", "__pycache__/", "a.log", "data/big.bin"]
    assert not Artifact.objects.exists(), "nothing is sent before the person says so"
    code.get_by_role("button", name="Upload it").click()
    expect(code.locator("[data-code-file]")).to_contain_text("This is lab.tar.gz")
    expect(form.locator("#summary-body")).to_contain_text(Artifact.objects.get().sha256)
    form.get_by_role("button", name="Submit", exact=True).click()
    form.wait_for_url("**/jobs/*/")
    (pool,) = Job.objects.get().spec["workerPoolSpecs"]
    stored = Artifact.objects.get()
    assert pool["trainyard"]["code"] == {"artifact": stored.sha256}
    data = b"".join(artifacts.open_artifact(stored))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        assert archive.getnames() == ["data/keep.txt", "run.sh", "train.py"]
        assert archive.getmember("run.sh").mode == 0o755


def test_a_folder_that_is_not_wanted_is_dropped_and_an_empty_one_is_refused(form, folder, tmp_path):
    form.get_by_label("Files", exact=True).check()
    code = form.locator("#code")
    form.locator("#code-folder").set_input_files(folder)
    code.get_by_role("button", name="Do not").click()
    assert not code.locator("[data-packed]").is_visible()
    (folder / ".gitignore").write_text("*\n")
    (folder / ".trainyardignore").unlink()
    form.locator("#code-folder").set_input_files(folder)
    expect(code.locator("[data-packed-line]")).to_contain_text("There is no file to upload.")
    assert not code.get_by_role("button", name="Upload it").is_visible() and not Artifact.objects.exists()


def test_an_archive_is_sent_at_once_and_a_refusal_stays_beside_the_bar(form, tmp_path, project):
    form.get_by_label("Files", exact=True).check()
    archive = tmp_path / "code.zip"
    archive.write_bytes(b"PK")
    form.locator("#code-file").set_input_files(archive)
    expect(form.locator("#code [data-code-file]")).to_have_text("This is code.zip, 2 B.")
    assert (
        form.get_by_label("Archive of the project's storage").input_value() == Artifact.objects.get().sha256
    )
    project.archived_at = project.created_at
    project.save()
    (tmp_path / "other.zip").write_bytes(b"PK 2")
    form.locator("#code-file").set_input_files(tmp_path / "other.zip")
    expect(form.locator("#code [data-said]")).to_contain_text("archived")
    assert Artifact.objects.count() == 1


def test_without_scripts_the_form_shows_each_kind_and_uploads_an_archive(form, live_server, tmp_path):
    plain = form.context.browser.new_context(java_script_enabled=False)
    plain.add_cookies(form.context.cookies())
    page = plain.new_page()
    page.goto(f"{live_server.url}/jobs/new")
    page.get_by_label("Name", exact=True).fill("typed before")
    primary = page.locator("#pool0")
    primary.get_by_label("Container image").check()
    assert primary.get_by_label("Image", exact=True).is_visible()
    assert not primary.get_by_label("Program", exact=True).is_visible()
    primary.get_by_label("Python package").check()
    assert (
        primary.get_by_label("Module").is_visible()
        and not primary.get_by_label("Image", exact=True).is_visible()
    )
    page.get_by_label("Files", exact=True).check()
    assert not page.locator("#code-folder").is_visible(), "only scripts can pack a folder"
    (tmp_path / "code.tar").write_bytes(b"tar")
    page.locator("#code-file").set_input_files(tmp_path / "code.tar")
    page.locator("#code").get_by_role("button", name="Upload", exact=True).click()
    page.get_by_text("This is code.tar").wait_for()
    assert page.get_by_label("Name", exact=True).input_value() == "typed before"
    assert (
        page.get_by_label("Archive of the project's storage").input_value() == Artifact.objects.get().sha256
    )
    plain.close()


def an_image(form):
    primary = form.locator("#pool0")
    primary.get_by_label("Container image").check()
    primary.get_by_label("Image", exact=True).fill("Not An Image")
    primary.get_by_label("Arguments").fill("--files=*.txt")
    form.get_by_label("Git repository").check()
    form.get_by_label("Repository", exact=True).fill("http://x")


def a_package(form):
    primary = form.locator("#pool0")
    primary.get_by_label("Python package").check()
    primary.get_by_label("Packages").fill("torch")
    form.get_by_label("Files", exact=True).check()


def shot(form, name):
    if folder := os.environ.get("SHOTS"):
        form.screenshot(path=f"{folder}/{name}.png", full_page=True)


@in_each_look
def test_what_is_brought_is_accessible_and_fits(form, live_server, folder, cast, project, width, theme):
    form.context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    form.set_viewport_size({"width": width, "height": 900})
    for choose in (an_image, a_package):
        form.goto(f"{live_server.url}/jobs/new")
        form.get_by_label("Name", exact=True).fill("train")
        choose(form)
        form.get_by_role("button", name="Would it start now?").click()
        form.get_by_text("Nothing was submitted.").wait_for()
        if choose is a_package:
            form.locator("#code-folder").set_input_files(folder)
            form.locator("#code [data-left-out] summary").click()
        is_accessible(form)
        assert form.evaluate("document.documentElement.scrollWidth") <= width
        shot(form, f"brings-{choose.__name__}-{width}-{theme}")
    job = a_cloned_job(project, cast)
    for address in ("clone", "spec"):
        form.goto(f"{live_server.url}/jobs/{job.pk}/{address}")
        is_accessible(form)
        assert form.evaluate("document.documentElement.scrollWidth") <= width
        shot(form, f"brings-{address}-{width}-{theme}")


def a_cloned_job(project, cast):
    a_host(facts={"runtimes": ["podman 5.4.2"]})
    job = a_job(project, cast.bob, state="SUCCEEDED")
    git = {"url": "https://git.example.com/lab/train.git", "revision": "main"}
    pool = {
        "replicaCount": "1",
        "containerSpec": {"imageUri": "ghcr.io/lab/train:1"},
        "trainyard": {"code": {"git": git, "directory": "src"}},
    }
    found = {
        "image": {"id": 64 * "a", "digest": f"sha256:{64 * 'b'}"},
        "code": {"git": git, "commit": 40 * "c", "directory": "src"},
    }
    Job.objects.filter(pk=job.pk).update(
        spec={"workerPoolSpecs": [pool]}, resolved={"pools": {"0": found}, "index": ""}
    )
    return job
