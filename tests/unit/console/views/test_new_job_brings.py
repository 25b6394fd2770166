"""What a job brings, in the new-job form: images, packages, code; and what a clone brings again."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import RequestFactory
from django.urls import resolve
from django.utils import timezone

from console import large_bodies
from jobs.artifacts import artifacts, objects
from jobs.models import Artifact, Job, JobSecret, Membership, Project, Role
from jobs.secrets import store
from tests.unit.console.views.example_rows import a_host, a_job, a_stored_file
from tests.unit.console.views.test_new_job import FORM, posted

IMAGE = {
    "pool0-kind": "image",
    "pool0-image": "ghcr.io/lab/train:1",
    "pool0-command": "python -u train.py",
    "pool0-args": "--lr\n0.1",
    # What is typed for another kind stays, and is not sent.
    "pool0-program": "a | b",
    "pool0-packages": "nonsense",
}
PACKAGE = {
    "pool0-kind": "package",
    "pool0-packages": "gs://lab-files/trainer-1.0.tar.gz\n\n",
    "pool0-module": "trainer.task",
    "pool0-args": "--epochs 3",
    "pool0-executor": "",
}
GIT = {
    "code-source": "git",
    "code-git_url": "https://git.example.com/lab/train.git",
    "code-git_revision": "main",
    "code-directory": "src",
    "code-stored": "what is hidden is not sent",
}
OLD, NEW = 64 * "a", 64 * "b"
COMMIT = 40 * "c"


@pytest.fixture
def podman(db):
    a_host(facts={"runtimes": ["podman 5.4.2"]})


def send(client, *typed):
    sent = dict(FORM)
    for more in typed:
        sent |= more
    return client.post("/jobs/new", sent)


def errors(answer):
    draft = answer.context["draft"]
    return {field.html_name: list(field.errors) for field in draft.fields_with_errors}


def the_pool():
    (pool,) = Job.objects.get().spec["workerPoolSpecs"]
    return pool


def an_archive(project, data=b"code", name="code.tar.gz"):
    return artifacts.add_artifact(project, "archive", name, [data], "bob")


def test_an_image_runs_with_its_command_and_arguments(browser, podman):
    assert send(browser("bob"), IMAGE).status_code == 302
    assert the_pool()["containerSpec"] == {
        "imageUri": "ghcr.io/lab/train:1",
        "command": ["python", "-u", "train.py"],
        "args": ["--lr", "0.1"],
    }


def test_an_image_alone_says_itself_what_it_starts(browser, podman):
    assert send(browser("bob"), IMAGE, {"pool0-command": "", "pool0-args": ""}).status_code == 302
    assert the_pool()["containerSpec"] == {"imageUri": "ghcr.io/lab/train:1"}


def test_a_package_is_run_as_a_module(browser, project):
    a_stored_file(project, "lab-files", "trainer-1.0.tar.gz")
    assert send(browser("bob"), PACKAGE).status_code == 302
    assert the_pool()["pythonPackageSpec"] == {
        "executorImageUri": "host",
        "packageUris": ["gs://lab-files/trainer-1.0.tar.gz"],
        "pythonModule": "trainer.task",
        "args": ["--epochs", "3"],
    }


ENGINE = {"pool0-runtime": "podman", "pool0-shm_mb": "2048"}


def test_the_engine_and_the_shared_memory_of_an_image_are_chosen_for_a_package_too(browser, project, podman):
    a_stored_file(project, "lab-files", "trainer-1.0.tar.gz")
    base = json.dumps({"trainyard": {"runtime": "docker", "shmMb": 1}})
    typed = {**PACKAGE, "pool0-executor": "ghcr.io/lab/torch:2", "pool0-base": base}
    assert send(browser("bob"), typed, ENGINE).status_code == 302
    pool = the_pool()
    assert pool["pythonPackageSpec"]["executorImageUri"] == "ghcr.io/lab/torch:2"
    assert pool["trainyard"] == {"runtime": "podman", "shmMb": 2048}


def test_what_is_for_containers_is_refused_at_its_field_for_the_python_of_the_host(browser, project):
    a_stored_file(project, "lab-files", "trainer-1.0.tar.gz")
    pool = send(browser("bob"), PACKAGE, ENGINE).context["draft"].pools[0]
    assert "does not fit" in str(pool.errors["runtime"]) and "/dev/shm" in str(pool.errors["shm_mb"])


def test_pools_that_follow_the_primary_run_its_image(browser, podman):
    more = {"pool1-on": "on", "pool1-same": "on", "pool1-kind": "package", "pool0-runtime": "podman"}
    assert send(browser("bob"), IMAGE, more, GIT).status_code == 302
    first, second = Job.objects.get().spec["workerPoolSpecs"]
    assert first == second and first["trainyard"]["runtime"] == "podman"


@pytest.mark.parametrize("action", ["submit", "check"])
@pytest.mark.parametrize(
    ("typed", "field", "told"),
    [
        ({**IMAGE, "pool0-image": ""}, "pool0-image", "Image is required."),
        ({**IMAGE, "pool0-image": "Not An Image"}, "pool0-image", "such as ghcr.io/lab/train:1.2"),
        ({**IMAGE, "pool0-args": "--files=*.txt"}, "pool0-args", "each in double quotes"),
        ({**IMAGE, "pool0-command": "python 'x"}, "pool0-command", "A quote is not closed"),
        ({**PACKAGE, "pool0-packages": ""}, "pool0-packages", "Packages is required."),
        ({**PACKAGE, "pool0-packages": "torch"}, "pool0-packages", "gs://bucket/name"),
        ({**PACKAGE, "pool0-packages": "gs://lab-files/none.whl"}, "pool0-packages", "no such object"),
        ({**PACKAGE, "pool0-module": "a-b"}, "pool0-module", "such as trainer.task"),
        ({**PACKAGE, "pool0-executor": "no image"}, "pool0-executor", 'must be "host"'),
        ({**GIT, "code-git_url": ""}, "code-git_url", "Repository is required."),
        ({**GIT, "code-git_url": "http://x/y"}, "code-git_url", "must be the address of a repository"),
        ({**GIT, "code-git_revision": ""}, "code-git_revision", "Revision is required."),
        ({**GIT, "code-git_revision": "a..b"}, "code-git_revision", "a commit, a branch or a tag"),
        ({**GIT, "code-git_secret": "NO_SUCH"}, "code-git_secret", "There is no secret NO_SUCH"),
        ({**GIT, "code-directory": "../up"}, "code-directory", "below the work directory"),
        ({"code-source": "stored"}, "code-stored", "Upload a file or a folder"),
        ({"code-source": "stored", "code-stored": "code.tar.gz"}, "code-stored", "64 digits"),
        ({"code-source": "stored", "code-stored": OLD}, "code-stored", "no artifact with this SHA-256"),
        ({"code-source": "stored", "code-stored": "gs://lab-files/none"}, "code-stored", "no such object"),
    ],
)
def test_an_error_is_at_its_field_and_nothing_typed_is_lost(browser, podman, action, typed, field, told):
    other_pool = {"pool1-on": "on", "pool1-same": "on"}
    answer = send(browser("bob"), typed, other_pool, {"action": action})
    assert answer.status_code == 200 and not Job.objects.exists()
    found = errors(answer)
    assert list(found) == [field] and told in found[field][0], found
    draft = answer.context["draft"]
    shown = {bound.html_name: bound.value() for form in (draft.code, draft.pools[0]) for bound in form}
    assert {name: shown[name] for name in typed} == typed


def test_the_code_of_a_job_goes_to_each_pool(browser, project, podman):
    archive = an_archive(project)
    others = {"pool1-on": "on", "pool1-kind": "argv", "pool1-program": "evaluate"}
    stored = {"code-source": "stored", "code-stored": archive.sha256}
    assert send(browser("bob"), stored, others).status_code == 302
    job = Job.objects.get()
    assert [pool["trainyard"] for pool in job.spec["workerPoolSpecs"]] == 2 * [
        {"code": {"artifact": archive.sha256}}
    ]
    assert job.resolved["pools"]["1"]["code"]["size"] == 4


def test_an_object_of_a_bucket_is_code_too(browser, project):
    a_stored_file(project, "lab-files", "code.tar.gz")
    stored = {"code-source": "stored", "code-stored": "gs://lab-files/code.tar.gz"}
    assert send(browser("bob"), stored).status_code == 302
    assert the_pool()["trainyard"] == {"code": {"archiveUri": "gs://lab-files/code.tar.gz"}}


def test_a_repository_is_opened_by_a_stored_secret(browser, project):
    store.put(project, "DEPLOY", "a-key", "alice", timezone.now())
    assert send(browser("bob"), GIT, {"code-git_secret": "DEPLOY"}).status_code == 302
    git = {"url": "https://git.example.com/lab/train.git", "revision": "main", "credentialSecret": "DEPLOY"}
    assert the_pool()["trainyard"] == {"code": {"git": git, "directory": "src"}}
    assert JobSecret.objects.count() == 1


def test_a_runtime_of_another_kind_of_task_does_not_stay_behind(browser, project):
    base = json.dumps({"trainyard": {"runtime": "python", "code": {"artifact": OLD}}, "diskSpec": {}})
    assert send(browser("bob"), {"pool0-base": base}).status_code == 302
    assert "trainyard" not in the_pool()


def test_the_preview_and_the_programs_show_what_the_job_brings(browser, podman):
    page = send(browser("bob"), IMAGE, GIT, {"action": "check"})
    shown = {each.what: each.name for each in page.context["summary"].brings}
    assert shown == {"Image": "ghcr.io/lab/train:1", "Code": "main of https://git.example.com/lab/train.git"}
    codes = {code.name: code for code in page.context["codes"]}
    assert '"imageUri": "ghcr.io/lab/train:1"' in codes["curl"].text
    assert codes["trainyard"].text.startswith("trainyard submit - --project=default --location=default")
    assert '"revision": "main"' in codes["trainyard"].text and "Use trainyard" in codes["SDK"].note
    alone = send(browser("bob"), IMAGE, {"action": "check"}).context["codes"]
    assert "ghcr.io/lab/train:1" in {code.name: code.text for code in alone}["SDK"]


def test_the_summary_counts_replicas_while_something_is_missing(browser, podman):
    for typed in (
        {**IMAGE, "pool0-image": "ghcr.io/"},
        {**PACKAGE, "pool0-module": ""},
        {**GIT, "code-git_url": ""},
    ):
        answer = browser("bob").post("/jobs/new/summary", {**FORM, **typed})
        assert answer.context["summary"].replicas == 1, typed


def test_the_json_tab_and_the_form_say_the_same(browser, podman):
    bob = browser("bob")
    as_json = send(bob, IMAGE, GIT, {"action": "json"}).context["draft"]
    sent = {**FORM, "mode": "json", "text": as_json["text"].value(), "action": "form"}
    form = bob.post("/jobs/new", sent).context["draft"]
    assert form.mode == "form"
    assert form.pools[0]["image"].value() == "ghcr.io/lab/train:1"
    assert form.code["git_revision"].value() == "main" and form.code["source"].value() == "git"


def test_pools_with_different_code_stay_json(browser, project, cast):
    """The form would send another job for it."""
    job = a_job(project, cast.bob)
    pool = {"containerSpec": {"imageUri": "host", "command": ["a"]}, "replicaCount": "1"}
    pools = [{**pool, "trainyard": {"code": {"artifact": OLD}}}, pool]
    Job.objects.filter(pk=job.pk).update(spec={"workerPoolSpecs": pools})
    draft = browser("bob").get(f"/jobs/{job.pk}/clone").context["draft"]
    assert draft.mode == "json" and json.loads(draft["text"].value())["jobSpec"]["workerPoolSpecs"] == pools
    sent = {**FORM, "mode": "json", "text": draft["text"].value(), "action": "form"}
    assert "This job stays JSON" in browser("bob").post("/jobs/new", sent).content.decode()


def upload(client, name="code.tar.gz", data=b"code", **typed):
    file = SimpleUploadedFile(name, data)
    return client.post("/jobs/new/code", {**FORM, "display_name": "typed before", **typed, "code-file": file})


def test_an_archive_is_uploaded_without_scripts(browser, project):
    bob = browser("bob")
    page = upload(bob, **{"pool0-program": "python3 train.py"})
    draft, (stored,) = page.context["draft"], Artifact.objects.all()
    assert (stored.name, stored.kind, stored.created_by) == ("code.tar.gz", "archive", "bob")
    assert draft.code["stored"].value() == stored.sha256 and draft.code["source"].value() == "stored"
    assert draft.job["display_name"].value() == "typed before"
    assert draft.pools[0]["program"].value() == "python3 train.py"
    assert re.search(r"This is code.tar.gz, 4\sbytes", page.content.decode())
    assert bob.post("/jobs/new", dict(posted(draft).lists())).status_code == 302
    assert the_pool()["trainyard"] == {"code": {"artifact": stored.sha256}}


def test_an_upload_that_is_refused_keeps_what_was_typed(browser, project):
    bob = browser("bob")
    for page, told in (
        (upload(bob, "train.py"), "Choose a tar or zip file"),
        (bob.post("/jobs/new/code", {**FORM, "display_name": "typed before"}), "This field is required"),
    ):
        assert page.status_code == 400 and told in page.content.decode()
        assert page.context["draft"].job["display_name"].value() == "typed before"
    Project.objects.filter(pk=project.pk).update(archived_at=timezone.now())
    assert upload(browser("bob")).status_code == 403
    assert not Artifact.objects.exists()


def test_nobody_uploads_to_a_project_of_others(browser, cast, project):
    assert upload(browser("vera")).status_code == 403
    for answer in (upload(browser("charlie")), upload(browser("bob"), project="elsewhere")):
        assert answer.status_code == 400 and "Choose a project first." in answer.content.decode()
    assert not Artifact.objects.exists()


def test_the_form_offers_the_archives_of_its_project_only(browser, cast, project):
    here, there = an_archive(project), an_archive(cast.elsewhere, b"other")
    package = artifacts.add_artifact(project, "package", "a.whl", [b"wheel"], "bob")
    page = browser("bob").get("/jobs/new")
    assert [row.sha256 for row in page.context["archives"]] == [here.sha256]
    stranger = {"code-source": "stored", "code-stored": there.sha256}
    assert "code_file" in page.context and send(browser("bob"), stranger).context["code_file"] is None
    assert package.sha256 not in page.content.decode()


@pytest.fixture
def done(project, cast, podman):
    """A job with an image and a branch, whose hosts have found out what these were."""
    pool = {
        "replicaCount": "1",
        "containerSpec": {"imageUri": "ghcr.io/lab/train:1"},
        "trainyard": {"code": {"git": {"url": "https://x.org/a", "revision": "main"}}},
    }
    job = a_job(project, cast.bob, state="SUCCEEDED")
    found = {
        "image": {"id": OLD, "digest": f"sha256:{NEW}"},
        "code": {"git": {"url": "https://x.org/a", "revision": "main"}, "commit": COMMIT, "directory": ""},
    }
    resolved = {"pools": {"0": found}, "index": ""}
    Job.objects.filter(pk=job.pk).update(spec={"workerPoolSpecs": [pool]}, resolved=resolved)
    return Job.objects.get(pk=job.pk)


def test_a_clone_says_that_it_brings_the_same_bytes(browser, done):
    page = browser("bob").get(f"/jobs/{done.pk}/clone")
    assert [(each.what, each.found) for each in page.context["kept"]] == [
        ("Image", f"sha256:{NEW}"),
        ("Code", COMMIT),
    ]
    text = page.content.decode()
    assert "The same bytes, wherever the same names stand below" in text and COMMIT in text
    assert page.context["draft"].job["brings"].value() == "same"


@pytest.mark.parametrize("mode", ["form", "json"])
@pytest.mark.parametrize(("brings", "is_same"), [(None, True), ("same", True), ("new", False)])
def test_a_clone_brings_the_same_bytes_unless_it_is_asked_for_new_ones(browser, done, mode, brings, is_same):
    bob = browser("bob")
    copy = posted(bob.get(f"/jobs/{done.pk}/clone").context["draft"])
    copy["mode"] = "form"
    if mode == "json":
        as_json = bob.post("/jobs/new", {**copy.dict(), "action": "json"}).context["draft"]
        copy = {bound.name: bound.value() for bound in as_json} | {"mode": "json"}
    sent = {**(copy if mode == "json" else copy.dict()), "brings": brings or ""}
    if brings is None:
        del sent["brings"]
    assert bob.post("/jobs/new", sent).status_code == 302
    made = Job.objects.latest("pk")
    assert made.cloned_from == done.pk
    pool = made.resolved["pools"]["0"]
    assert (pool["code"].get("commit") == COMMIT) is is_same
    assert (pool.get("image") == {"id": OLD, "digest": f"sha256:{NEW}"}) is is_same


def test_the_choice_stays_when_the_form_comes_back(browser, done):
    bob = browser("bob")
    copy = posted(bob.get(f"/jobs/{done.pk}/clone").context["draft"]).dict()
    back = bob.post("/jobs/new", {**copy, "mode": "form", "brings": "new", "timeout": "soon"})
    assert back.context["draft"].job["brings"].value() == "new" and back.context["kept"]


def test_a_form_that_is_no_clone_or_of_a_job_of_others_says_nothing(browser, cast, done):
    assert browser("bob").get("/jobs/new").context["kept"] == ()
    answer = browser("charlie").post(
        "/jobs/new", {**FORM, "project": "elsewhere", "timeout": "soon", "cloned_from": str(done.pk)}
    )
    assert answer.context["kept"] == () and COMMIT not in answer.content.decode()
    huge = browser("bob").post("/jobs/new", {**FORM, "cloned_from": 40 * "9"})
    assert huge.status_code == 200 and huge.context["kept"] == ()


def test_the_page_of_a_job_shows_what_it_brought_and_what_that_was(browser, project, cast, done):
    bob = browser("bob")
    text = bob.get(f"/jobs/{done.pk}/spec").content.decode()
    assert all(
        part in text for part in ("ghcr.io/lab/train:1", f"sha256:{NEW}", "main of https://x.org/a", COMMIT)
    )


def test_scripts_get_the_same(browser, done):
    found = browser("bob").get(f"/api/v1/jobs/{done.pk}").json()
    assert found["brought"] == {"workerpool0": {"image": f"sha256:{NEW}", "code": COMMIT}}


def test_packages_and_archives_lead_to_the_storage(browser, project, cast):
    a_stored_file(project, "lab-files", "a.whl", b"wheel")
    archive = an_archive(project)
    package = {"pool0-packages": "gs://lab-files/a.whl", "pool0-module": "a"}
    code = {"code-source": "stored", "code-stored": archive.sha256}
    bob = browser("bob")
    assert send(bob, PACKAGE, package, code).status_code == 302
    job = Job.objects.get()
    page = bob.get(f"/jobs/{job.pk}/spec").content.decode()
    sha256 = job.resolved["pools"]["0"]["packages"][0]["sha256"]
    assert f'href="/projects/default/storage/artifacts/{archive.sha256}"' in page and "code.tar.gz" in page
    assert 'href="/projects/default/storage/b/lab-files/file/a.whl"' in page and sha256 in page
    objects.put_object(project, "lab-files", "a.whl", [b"another wheel"], by="bob")
    page = bob.get(f"/jobs/{job.pk}/spec").content.decode()
    assert "replaced there since" in page and "b/lab-files/file/a.whl" not in page and sha256 in page


def test_the_difference_of_two_jobs_shows_other_bytes(browser, cast, project, done):
    other = a_job(project, cast.bob, state="SUCCEEDED")
    moved = json.loads(json.dumps(done.resolved).replace(COMMIT, 40 * "d"))
    Job.objects.filter(pk=other.pk).update(
        spec=done.spec, resolved=moved, cloned_from=done.pk, display_name=done.display_name
    )
    text = browser("bob").get(f"/jobs/{other.pk}/diff").content.decode()
    assert COMMIT in text and 40 * "d" in text


@pytest.mark.parametrize("address", ["/jobs/new/code", "/jobs/pipelines/new/code"])
def test_an_upload_takes_a_place_of_its_project_or_of_its_person(browser, cast, project, address):
    """Its project is said in its body. One person's uploads do not turn away those of the next one."""

    def share(who):
        request = RequestFactory().post(address)
        request.user, request.received_body = User.objects.get(username=who), None
        request.htmx = False  # as the middleware sets it
        wanted = resolve(address).func(request)
        wanted.sink.discard()
        return wanted.sink.share

    assert large_bodies.is_large("POST", address)
    assert share("bob") == share("bella") == f"project {project.pk}"
    Membership.objects.create(user=cast.bob, project=cast.elsewhere, role=Role.SUBMITTER)
    assert share("bob") == f"person {cast.bob.pk}" and share("bella") == f"project {project.pk}"
