"""Artifacts and buckets by REST: what is stored, refused, read, and hidden from others."""

from __future__ import annotations

import hashlib

import pytest
from django.utils import timezone

from jobs.artifacts import artifacts, buckets, storage
from jobs.models import Artifact, AuditEntry, Blob, Membership
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric

A = "/api/v1/projects/default/artifacts"
B = "/api/v1/projects/default/buckets"
CODE = b"the code"
SHA256 = hashlib.sha256(CODE).hexdigest()


def post(client, data=CODE, query="kind=archive&name=code.tar.gz"):
    return client.generic("POST", f"{A}?{query}", data, content_type="application/octet-stream")


def body(answer):
    return b"".join(answer.streaming_content)


def test_an_artifact_is_stored_once_listed_read_and_deleted(script, project):
    bob = script("bob")
    answer = post(bob, query=f"kind=archive&name=code.tar.gz&sha256={SHA256}")
    assert answer.status_code == 201
    assert (
        answer.json().items()
        >= {"sha256": SHA256, "kind": "archive", "sizeBytes": "8", "createdBy": "bob"}.items()
    )
    assert post(bob).status_code == 200
    assert [each["sha256"] for each in bob.get(A).json()["artifacts"]] == [SHA256]
    assert bob.get(f"{A}/{SHA256}").json()["name"] == "code.tar.gz"
    whole = bob.get(f"{A}/{SHA256}/content")
    assert body(whole) == CODE and whole["Content-Disposition"].startswith(
        "attachment; filename*=UTF-8''code.tar.gz"
    )
    part = bob.get(f"{A}/{SHA256}/content", headers={"Range": "bytes=4-"})
    assert (part.status_code, part["Content-Range"], body(part)) == (206, "bytes 4-7/8", b"code")
    outside = bob.get(f"{A}/{SHA256}/content", headers={"Range": "bytes=8-"})
    assert (outside.status_code, outside["Content-Range"]) == (416, "bytes */8")
    assert outside.json()["error"]["message"] == "There are 8 bytes."
    assert bob.delete(f"{A}/{SHA256}").status_code == 200
    assert bob.get(f"{A}/{SHA256}").status_code == 404
    told = AuditEntry.objects.filter(subject_kind="artifact").order_by("pk").values_list("what", "actor")
    assert list(told) == [("artifact.add", "bob"), ("artifact.delete", "bob")]


def test_lists_are_paged_and_filtered(script, project):
    bob = script("bob")
    for number in range(5):
        post(bob, b"%d" % number, f"kind={'package' if number % 2 else 'archive'}&name=n{number}")
    first = bob.get(f"{A}?pageSize=2").json()
    second = bob.get(f"{A}?pageSize=2&pageToken={first['nextPageToken']}").json()
    last = bob.get(f"{A}?pageSize=2&pageToken={second['nextPageToken']}").json()
    names = [each["name"] for page in (first, second, last) for each in page["artifacts"]]
    assert names == ["n4", "n3", "n2", "n1", "n0"] and "nextPageToken" not in last
    assert {each["name"] for each in bob.get(f"{A}?kind=package").json()["artifacts"]} == {"n1", "n3"}
    assert bob.get(f"{A}?pageToken=x").status_code == 400


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("kind=virus&name=a", "kind"),
        ("kind=archive&name=", "name"),
        ("kind=archive&name=..%2Fa", "name"),
        ("kind=archive&name=a%0Ab", "name"),
        ("kind=archive&name=a&sha256=abc", "sha256"),
        (f"kind=archive&name=a&sha256={'0' * 64}", "sha256"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(script, project, query, field):
    answer = post(script("bob"), query=query)
    assert answer.status_code == 400
    violation = answer.json()["error"]["details"][0]["fieldViolations"][0]
    assert violation["field"] == field
    assert not Artifact.objects.exists() and not Blob.objects.exists()
    assert list(storage.files()) == [] or not Blob.objects.exists()


def test_a_viewer_reads_and_stores_nothing(script, project):
    post(script("bob"))
    vera = script("vera")
    assert body(vera.get(f"{A}/{SHA256}/content")) == CODE
    assert post(vera, b"other").status_code == 403
    assert vera.delete(f"{A}/{SHA256}").status_code == 403


def test_a_project_does_not_learn_that_another_has_the_same_bytes(script, project, cast):
    """The digest is known, and the answer is the same as for one that nobody has. So is that to an upload."""
    artifacts.add_artifact(cast.elsewhere, "archive", "code.tar", [CODE], "charlie")
    bob = script("bob")
    assert bob.get(f"{A}/{SHA256}").content == bob.get(f"{A}/{'0' * 64}").content
    assert bob.get(f"{A}/{SHA256}").status_code == 404
    assert post(bob).status_code == 201
    assert not Membership.objects.filter(user=cast.bob, project=cast.elsewhere).exists()


def test_the_quota_is_told_before_and_refused_with_429(script, project):
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", 0.00000001, "root", timezone.now())
    bob = script("bob")
    assert post(bob).status_code == 201
    answer = post(bob, b"more")
    assert answer.status_code == 429 and "may store 1e-08 GB" in answer.json()["error"]["message"]
    shown = bob.get("/api/v1/projects/default/quotas").json()["storageGb"]
    assert shown["limit"] == 0.00000001 and "At the limit nothing more is stored" in shown["warning"]
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", 1, "root", timezone.now())
    assert "warning" not in bob.get("/api/v1/projects/default/quotas").json()["storageGb"]


def test_buckets_and_objects_by_our_own_addresses(script, project):
    bob = script("bob")
    assert bob.post(B, {"name": "ours"}, content_type="application/json").json()["uri"] == "gs://ours/"
    stored = bob.put(f"{B}/ours/objects/runs/7/a.txt", CODE, content_type="text/plain").json()
    assert (
        stored.items()
        >= {"uri": "gs://ours/runs/7/a.txt", "sha256": SHA256, "contentType": "text/plain"}.items()
    )
    bob.put(f"{B}/ours/objects/top", CODE)
    listed = bob.get(f"{B}/ours/objects?delimiter=/").json()
    assert [each["name"] for each in listed["objects"]] == ["top"] and listed["prefixes"] == ["runs/"]
    assert body(bob.get(f"{B}/ours/objects/runs/7/a.txt?alt=media")) == CODE
    assert bob.delete(f"{B}/ours").status_code == 409
    for name in ("top", "runs/7/a.txt"):
        assert bob.delete(f"{B}/ours/objects/{name}").status_code == 200
    assert bob.delete(f"{B}/ours").status_code == 200
    assert bob.get(f"{B}/ours").status_code == 404


def test_a_bucket_of_another_project_is_not_found_here(script, project, cast):
    buckets.create(cast.elsewhere, "theirs", "charlie", timezone.now())
    bob = script("bob")
    for path in (f"{B}/theirs", f"{B}/theirs/objects", f"{B}/theirs/objects/a", "/storage/v1/b/theirs/o"):
        assert bob.get(path).status_code == 404, path
    assert bob.put(f"{B}/theirs/objects/a", CODE).status_code == 404


def test_bytes_that_are_missing_are_told(script, project):
    bob = script("bob")
    post(bob)
    storage.remove(Blob.objects.get().key)
    answer = bob.get(f"{A}/{SHA256}/content")
    assert answer.status_code == 503 and "Ask an admin for the backup" in answer.json()["error"]["message"]


def test_a_bucket_says_for_how_many_days_objects_are_kept(script, project):
    buckets.create(project, "ours", "bob", timezone.now())
    boss = script("alice")
    assert "keepDays" not in boss.get(f"{B}/ours").json()
    assert boss.patch(f"{B}/ours", {"keepDays": 30}, content_type="application/json").json()["keepDays"] == 30
    seen = boss.get(f"{B}/ours").json()
    assert seen["keepDays"] == 30 and seen["keepDaysWaits"] == "Trainyard's time is not known yet."
    for nonsense in (0, -1, 1.5, "30", True, 10**9):
        answer = boss.patch(f"{B}/ours", {"keepDays": nonsense}, content_type="application/json")
        assert answer.status_code == 400 and "keepDays" in answer.content.decode(), nonsense
    assert boss.patch(f"{B}/ours", {}, content_type="application/json").status_code == 400
    cleared = boss.patch(f"{B}/ours", {"keepDays": None}, content_type="application/json")
    assert cleared.status_code == 200 and "keepDays" not in cleared.json()


def test_each_object_that_is_deleted_is_in_the_audit(script, project):
    bob = script("bob")
    buckets.create(project, "ours", "bob", timezone.now())
    for name in ("a", "b"):
        assert bob.put(f"{B}/ours/objects/{name}", CODE, content_type="text/plain").status_code == 200
    assert bob.delete(f"{B}/ours/objects/a").status_code == 200
    assert bob.delete("/storage/v1/b/ours/o/b").status_code == 204
    told = AuditEntry.objects.filter(what="object.delete").order_by("pk")
    assert [(row.actor, row.subject, row.before) for row in told] == [
        ("bob", "gs://ours/a", SHA256),
        ("bob", "gs://ours/b", SHA256),
    ]
    assert bob.delete(f"{B}/ours/objects/a").status_code == 404 and told.count() == 2
