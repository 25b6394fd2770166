"""Google's storage API without its client: what bounds an upload, and requests that meet."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils import timezone

from console import large_bodies
from jobs.artifacts import buckets, incoming, objects, uploads
from jobs.artifacts.uploads import Part
from jobs.models import Project, StoredObject, Upload
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.harness.races import race

OBJECTS = "/storage/v1/b/first-bucket/o"


@pytest.fixture
def bucket(cast):
    return buckets.create(Project.objects.get(name="default"), "first-bucket", "bob", timezone.now())


def limit(bytes_):
    target = QuotaTarget(Project.objects.get(name="default"))
    quotas.set_limit(target, Metric.STORAGE_GB, "", bytes_ / 10**9, "root", timezone.now())


def put_object(bucket, name, data=b"hello"):
    return objects.put_object(bucket.project, bucket.name, name, [data], by="bob")


def begin(client, name="large", **headers):
    answer = client.post(
        f"/upload{OBJECTS}?uploadType=resumable&name={name}",
        {},
        content_type="application/json",
        headers=headers,
    )
    assert answer.status_code == 200, answer.content
    return answer["Location"]


def send(client, address, data, sent_range=None):
    headers = {"Content-Range": sent_range} if sent_range else {}
    return client.put(address, data, content_type="application/octet-stream", headers=headers)


def test_the_total_that_a_sender_names_must_fit_the_quota_and_counts_from_then_on(script, bucket):
    limit(1000)
    bob = script("bob")
    first, second = begin(bob, "a"), begin(bob, "b")
    refused = send(bob, first, b"x", "bytes 0-0/999999999999999")
    assert refused.status_code == 403 and "may store" in refused.json()["error"]["message"]
    assert send(bob, first, b"x", "bytes 0-0/700").status_code == 308
    assert send(bob, second, b"x", "bytes 0-0/700").status_code == 403
    assert send(bob, second, b"y" * 300, None).status_code == 200
    assert sorted(Upload.objects.values_list("size", flat=True)) == [300, 700]


def test_a_smaller_total_does_not_hide_what_has_come(script, bucket):
    limit(1000)
    bob = script("bob")
    first, second = begin(bob, "a"), begin(bob, "b")
    assert send(bob, first, b"x" * 800, "bytes 0-799/*").status_code == 308
    Upload.objects.filter(name="a").update(size=1)
    assert send(bob, second, b"y" * 300, "bytes 0-299/*").status_code == 403


def test_uploads_that_name_no_total_share_the_quota(script, bucket):
    limit(1000)
    bob = script("bob")
    first, second = begin(bob, "a"), begin(bob, "b")
    assert send(bob, first, b"x" * 700, "bytes 0-699/*").status_code == 308
    assert send(bob, first, b"x" * 100, "bytes 700-799/*").status_code == 308
    assert send(bob, second, b"y" * 300, "bytes 0-299/*").status_code == 403
    assert begin(bob, "c", **{"X-Upload-Content-Length": "200"})
    refused = bob.post(
        f"/upload{OBJECTS}?uploadType=resumable&name=d",
        {},
        content_type="application/json",
        headers={"X-Upload-Content-Length": "201"},
    )
    assert refused.status_code == 403


def test_a_second_request_of_an_upload_is_told_to_try_again(script, bucket):
    bob = script("bob")
    address = begin(bob)
    upload = uploads.find(address.rpartition("=")[2])
    part = Part(upload, 0, None)
    answer = send(bob, address, b"hello")
    part.discard()
    assert answer.status_code == 503
    assert send(bob, address, b"hello").status_code == 200


@pytest.mark.parametrize("way", ["media", "multipart", "resumable"])
def test_each_way_takes_a_place_of_its_own_project(script, bucket, monkeypatch, way):
    monkeypatch.setattr(large_bodies, "is_first_call", lambda request: True)
    wanted = script("bob").post(
        f"/upload{OBJECTS}?uploadType={way}&name=a", {}, content_type="application/json"
    )
    wanted.sink.discard()
    assert wanted.sink.share == incoming.share_of_project(bucket.project_id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["google", "own"])
def test_a_delete_and_a_replacement_that_meet_both_end(script, bucket, way):
    put_object(bucket, "a")
    put_object(bucket, "b", b"other")
    own = "/api/v1/projects/default/buckets/first-bucket/objects/a"
    bob = script("bob")

    def delete():
        return bob.delete(own if way == "own" else f"{OBJECTS}/a").status_code

    # The delete has locked the blob that the replacement releases.
    deleted, stored = race(delete, lambda: put_object(bucket, "a", b"other"), after='UPDATE "jobs_blob"')
    assert deleted in (200, 204)
    assert isinstance(stored, StoredObject)


@pytest.mark.django_db(transaction=True)
def test_a_delete_of_one_generation_leaves_the_next(script, bucket):
    generation = put_object(bucket, "a").generation
    bob = script("bob")

    def delete():
        return bob.delete(f"{OBJECTS}/a?ifGenerationMatch={generation}").status_code

    def store():
        return put_object(bucket, "a", b"new")

    if connection.vendor == "sqlite":  # one writer at a time: the delete comes after the store
        stored, deleted = store(), delete()
    else:
        stored, deleted = race(store, delete, after='INSERT INTO "jobs_blob"')
    assert isinstance(stored, StoredObject)
    assert deleted == 412
    assert b"".join(objects.open_object(StoredObject.objects.select_related("blob").get())) == b"new"


@pytest.mark.django_db(transaction=True)
def test_a_patch_does_not_bring_a_deleted_object_back(script, bucket):
    put_object(bucket, "a")
    bob, again = script("bob"), script("bob")

    def patch():
        return bob.patch(
            f"{OBJECTS}/a", {"contentType": "text/x"}, content_type="application/json"
        ).status_code

    _, deleted = race(
        patch, lambda: again.delete(f"{OBJECTS}/a").status_code, before='UPDATE "jobs_storedobject"'
    )
    assert deleted == 204
    assert not StoredObject.objects.exists()


@pytest.mark.parametrize(
    "name", ["x/compose", "x/rewriteTo/b/first-bucket/o/y", "x/copyTo/b/first-bucket/o/y"]
)
def test_an_object_may_be_named_as_what_is_done_with_others(script, bucket, name):
    put_object(bucket, name)
    bob = script("bob")
    assert bob.get(f"{OBJECTS}/{name}").json()["name"] == name
    patched = bob.patch(f"{OBJECTS}/{name}", {"contentType": "text/x"}, content_type="application/json")
    assert patched.json()["contentType"] == "text/x"
    assert bob.delete(f"{OBJECTS}/{name}").status_code == 204
    assert not StoredObject.objects.exists()
