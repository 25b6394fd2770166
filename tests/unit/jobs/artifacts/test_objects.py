"""Objects: ranges, generations, lists as Google's storage makes them, and what other projects may not learn."""

from __future__ import annotations

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.infra.refusals import Conflict, Refused
from jobs.artifacts import artifacts, buckets, objects
from jobs.artifacts.objects import About, Changed, NoSuchBucket, list_objects
from jobs.models import AuditEntry, Blob, Bucket, StoredObject
from tests.harness.examples import examples_here
from tests.unit.jobs.artifacts.test_blobs import put

NAMES = st.text(alphabet="ab/é-", min_size=1, max_size=6).filter(
    lambda name: not name.startswith("/") and "//" not in name
)


@pytest.mark.parametrize(
    ("start", "end", "found"), [(0, None, b"0123456789"), (3, 7, b"3456"), (9, 99, b"9"), (10, 10, b"")]
)
def test_a_range_is_read(bucket, start, end, found):
    put(bucket, "a", b"0123456789")
    row = objects.find_object(bucket.project, "gs://first-bucket/a")
    assert b"".join(objects.open_object(row, start, end)) == found


def test_each_replacement_is_another_generation(bucket):
    first = put(bucket, "a", b"one", content_type="text/plain", metadata={"step": "1"}).generation
    second = put(bucket, "a", b"two").generation
    assert second > first
    row = StoredObject.objects.get()
    assert (row.generation, row.metadata, row.content_type) == (second, {}, "application/octet-stream")


def test_a_generation_that_was_named_must_be_the_present_one(bucket):
    blob = put(bucket, "a").blob
    for wrong in (0, 1):
        with pytest.raises(Changed):
            objects.point(bucket, "a", blob, About(if_generation=wrong), "alice", timezone.now())
    with pytest.raises(Changed, match="There is no object b"):
        objects.point(bucket, "b", blob, About(if_generation=7), "alice", timezone.now())
    objects.point(bucket, "b", blob, About(if_generation=0), "alice", timezone.now())


@pytest.mark.parametrize("name", ["", "../a", "a\nb", "x" * 1025])
def test_a_bad_name_is_refused_before_a_byte_is_read(bucket, name):
    def unread():
        raise AssertionError("it was read")
        yield b""

    with pytest.raises(Refused) as refused:
        objects.put_object(bucket.project, bucket.name, name, unread())
    assert refused.value.field == "name"


def test_another_projects_bucket_and_artifact_are_not_found(bucket, project, other):
    put(bucket, "a")
    made = artifacts.add_artifact(project, "archive", "code.tar", [b"code"], "alice")
    assert objects.find_object(other, "gs://first-bucket/a") is None
    assert artifacts.find_artifact(other, made.sha256) is None
    assert artifacts.find_artifact(project, made.sha256.upper()) is None
    with pytest.raises(NoSuchBucket):
        objects.put_object(other, "first-bucket", "a", [b"x"])


def test_buckets_are_made_once_and_deleted_empty(bucket, project, other):
    with pytest.raises(Conflict, match="already"):
        buckets.create(other, "first-bucket", "bob", timezone.now())
    row = put(bucket, "a")
    with pytest.raises(Conflict, match="has objects"):
        buckets.delete(bucket, "alice", timezone.now())
    objects.delete_object(row, "alice", timezone.now())
    buckets.delete(bucket, "alice", timezone.now())
    assert not Bucket.objects.exists()
    told = AuditEntry.objects.filter(subject="first-bucket").values_list("what", flat=True).order_by("pk")
    assert list(told) == ["bucket.create", "bucket.delete"]


def test_an_archived_project_stores_nothing_new(bucket, project):
    project.archived_at = timezone.now()
    project.save()
    with pytest.raises(Refused, match="archived"):
        put(bucket, "a")
    with pytest.raises(Refused, match="archived"):
        artifacts.add_artifact(project, "archive", "code.tar", [b"code"], "alice")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\0", "x" * 256, "a\nb"])
def test_an_artifact_has_the_name_of_a_file(project, name):
    with pytest.raises(Refused):
        artifacts.add_artifact(project, "archive", name, [b"code"], "alice")


def test_an_unknown_kind_is_refused_with_those_that_there_are(project):
    with pytest.raises(Refused, match="archive, package, image"):
        artifacts.add_artifact(project, "virus", "a", [b"code"], "alice")


@settings(max_examples=examples_here(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(NAMES, max_size=14),
    st.text(alphabet="ab/é", max_size=3),
    st.sampled_from(["", "/", "b"]),
    st.integers(1, 4),
)
def test_pages_of_a_list_are_what_google_would_list(bucket, names, prefix, delimiter, limit):
    StoredObject.objects.all().delete()
    blob = Blob.objects.first() or put(bucket, "seed").blob
    StoredObject.objects.all().delete()
    for name in names:
        objects.point(bucket, name, blob, About(), "alice", timezone.now())
    wanted_objects, wanted_prefixes = [], set()
    for name in sorted(names, key=str.encode):
        if name.startswith(prefix):
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                wanted_objects.append(name)
            else:
                wanted_prefixes.add(name[: cut + len(delimiter)])
    found, shared, position = [], [], b""
    while True:
        page = list_objects(bucket, prefix, delimiter, position, limit)
        assert len(page.objects) + len(page.prefixes) <= limit
        found += [row.name for row in page.objects]
        shared += page.prefixes
        position = page.next_position
        if not position:
            break
    assert found == wanted_objects
    assert shared == sorted(wanted_prefixes, key=str.encode)
