"""Pages of stored files: what is shown, uploads without scripts, deletion, and names that attack."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from jobs.artifacts import artifacts, buckets, objects, storage
from jobs.models import Artifact, AuditEntry, Blob, Bucket, StoredObject
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.unit.console.views.example_rows import a_stored_file, one_line

S = "/projects/default/storage"


def limit(project, gb):
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", gb, "root", timezone.now())


def text(answer):
    return one_line(answer.content.decode())


def test_the_page_shows_what_is_stored_and_how_much_of_the_quota(browser, project):
    a_stored_file(project, "ours", "runs/7/a.txt", b"x" * 900_000)
    limit(project, 0.001)
    page = text(browser("bob").get(S))
    for words in (
        "ours",
        "code.tar.gz",
        "0.00 GB of 0.001 GB are stored",
        "At the limit nothing more is stored",
    ):
        assert words in page
    assert "Upload a file for jobs" in page
    viewed = text(browser("vera").get(S))
    assert "code.tar.gz" in viewed and "Upload a file for jobs" not in viewed and "Delete code" not in viewed


def test_a_bucket_is_shown_as_folders_and_read_back(browser, project):
    a_stored_file(project, "ours", "runs/7/a.txt")
    bob = browser("bob")
    assert ">runs/<" in bob.get(f"{S}/b/ours").content.decode()
    assert ">a.txt<" in bob.get(f"{S}/b/ours?prefix=runs/7/").content.decode()
    answer = bob.get(f"{S}/b/ours/file/runs/7/a.txt")
    assert b"".join(answer.streaming_content) == b"hello"
    assert answer["Content-Disposition"].startswith("attachment")


def test_a_file_is_uploaded_by_a_plain_form(browser, project):
    bob = browser("bob")
    assert bob.post(f"{S}/buckets/add", {"name": "ours"}).status_code == 302
    file = SimpleUploadedFile("b.txt", b"bytes", "text/plain")
    assert bob.post(f"{S}/b/ours/upload", {"folder": "a/", "file": file}).status_code == 302
    row = StoredObject.objects.get()
    assert (row.name, row.content_type, b"".join(objects.open_object(row))) == (
        "a/b.txt",
        "text/plain",
        b"bytes",
    )
    file = SimpleUploadedFile("code.zip", b"zip")
    assert bob.post(f"{S}/artifacts/add", {"kind": "archive", "file": file}).status_code == 302
    made = Artifact.objects.get()
    assert (made.name, made.kind, made.created_by) == ("code.zip", "archive", "bob")


def test_what_is_refused_stands_beside_its_field(browser, project):
    bob = browser("bob")
    assert "3 to 63 small letters" in text(bob.post(f"{S}/buckets/add", {"name": "No!"}))
    limit(project, 0)
    file = SimpleUploadedFile("code.zip", b"zip")
    answer = bob.post(f"{S}/artifacts/add", {"kind": "archive", "file": file})
    assert answer.status_code == 400 and "may store 0 GB" in text(answer)


def test_deleting_asks_first_and_goes_back_to_the_folder(browser, project):
    sha256 = a_stored_file(project, "ours", "runs/a.txt")
    bob = browser("bob")
    assert "Delete gs://ours/runs/a.txt?" in text(bob.get(f"{S}/b/ours/delete/runs/a.txt"))
    assert "Bucket ours has objects" in text(bob.post(f"{S}/b/ours/delete", follow=True))
    answer = bob.post(f"{S}/b/ours/delete/runs/a.txt")
    assert answer.url == f"{S}/b/ours?prefix=runs%2F"
    assert not StoredObject.objects.exists()
    bob.post(f"{S}/artifacts/{sha256}/delete")
    assert not Artifact.objects.exists()
    assert bob.post(f"{S}/b/ours/delete").url == S


NASTY = ["<script>alert(1)</script>", "\"onmouseover='x'", "a&b=c#d?e", "‮gpj.exe", "%2e%2e", "é/模型 1"]


@pytest.mark.parametrize("name", NASTY)
def test_names_that_attack_are_text(browser, project, name):
    buckets.create(project, "ours", "bob", timezone.now())
    objects.put_object(project, "ours", f"d/{name}", [b"x"], by="bob")
    artifacts.add_artifact(project, "archive", name.replace("/", "_"), [b"y"], "bob")
    bob = browser("bob")
    shown = bob.get(f"{S}/b/ours?prefix=d/").content.decode() + bob.get(S).content.decode()
    assert "<script>alert" not in shown and "onmouseover='x'" not in shown
    row = StoredObject.objects.get()
    page = storage_link(bob, row)
    assert b"".join(bob.get(page).streaming_content) == b"x"


def storage_link(client, row):
    """The address that the page itself has for the object."""
    folder = row.name.rpartition("/")[0]
    answer = client.get(f"{S}/b/ours", {"prefix": f"{folder}/"})
    (file,) = answer.context["page"].files
    return file.download


def test_a_bucket_of_another_project_is_not_there(browser, project, cast):
    buckets.create(cast.elsewhere, "theirs", "charlie", timezone.now())
    bob = browser("bob")
    for path in ("", "/file/a", "/delete", "/delete/a"):
        assert bob.get(f"{S}/b/theirs{path}").status_code == 404
    bob.post(f"{S}/b/theirs/delete")
    assert buckets.find(cast.elsewhere, "theirs")
    assert bob.post(f"{S}/b/theirs/upload", {"file": SimpleUploadedFile("a", b"b")}).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_script_of_the_page_uploads_with_the_session_and_its_token(browser, project, settings, method):
    """As `upload.js` does: the bytes are the body, of whatever type, and the token of the form is a header."""
    buckets.create(project, "ours", "bob", timezone.now())
    path = {"POST": "artifacts?kind=archive&name=a.zip", "PUT": "buckets/ours/objects/a.zip"}[method]
    bob = browser("bob", enforce_csrf_checks=True)
    bob.get(S)
    token = {"X-CSRFToken": bob.cookies[settings.CSRF_COOKIE_NAME].value}

    def send(**headers):
        kind = "application/zip"
        return bob.generic(
            method, f"/api/v1/projects/default/{path}", b"zip", content_type=kind, headers=headers
        )

    assert send().status_code == 403
    assert send(**token).status_code in (200, 201)


def test_an_admin_of_the_project_limits_the_age_of_objects(browser, project):
    a_stored_file(project, "ours", "runs/7/a.txt")
    alice = browser("alice")
    assert "Keep objects for so many days" in text(alice.get(f"{S}/b/ours"))
    refused = alice.post(f"{S}/b/ours/change", {"keep_days": "0"})
    assert refused.status_code == 400 and "greater than or equal to 1" in text(refused)
    assert alice.post(f"{S}/b/ours/change", {"keep_days": "30"}).status_code == 302
    assert Bucket.objects.get().keep_days == 30
    assert 'value="30"' in text(alice.get(f"{S}/b/ours"))
    seen = text(browser("bob").get(f"{S}/b/ours"))
    assert "older than 30 days are deleted by themselves" in seen and "Keep objects" not in seen
    assert alice.post(f"{S}/b/ours/change", {"keep_days": ""}).status_code == 302
    assert Bucket.objects.get().keep_days is None
    told = AuditEntry.objects.filter(what="bucket.keep").order_by("pk")
    assert [(row.actor, row.before, row.after) for row in told] == [("alice", None, 30), ("alice", 30, None)]


def test_the_page_of_a_bucket_says_that_its_rule_waits(browser, project):
    a_stored_file(project, "ours", "runs/7/a.txt")
    told = "No object is deleted by its age at this moment. Trainyard&#x27;s time is not known yet."
    assert told not in text(browser("alice").get(f"{S}/b/ours")), "there is no rule"
    Bucket.objects.update(keep_days=30)
    for who in ("alice", "bob"):
        assert told in text(browser(who).get(f"{S}/b/ours"))


def test_bytes_that_are_missing_are_told_on_a_page(browser, project):
    a_stored_file(project, "ours", "runs/7/a.txt")
    storage.remove(Blob.objects.filter(stored_objects__name="runs/7/a.txt").get().key)
    answer = browser("bob").get(f"{S}/b/ours/file/runs/7/a.txt")
    assert answer.status_code == 503 and "Ask an admin for the backup" in text(answer)
