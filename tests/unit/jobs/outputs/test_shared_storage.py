"""Storage that all hosts of a location share: orders name its directory, and nothing of it is copied."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Location
from jobs.artifacts import buckets
from jobs.maintenance import location_storage
from jobs.models import AuditEntry, Bucket, HostOutputs, Project, Run
from jobs.scheduling import output_directories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def share():
    def share(**directories):
        asked = {name.replace("_", "-").replace("every", "*"): path for name, path in directories.items()}
        location_storage.share(Location.objects.get(name="default"), asked, "alice", timezone.now())

    return share


def order():
    return Run.objects.get().order["outputs"]


def test_a_bucket_on_shared_storage_is_its_directory_and_is_not_stored(add_files, begin, share):
    host = add_files()
    share(bucket_1="/data/one/", every="/data/all")
    job = begin(host, command="train --data gs://other-bucket/x")
    assert order()["buckets"] == {"bucket-1": "/data/one", "other-bucket": "/data/all/other-bucket"}
    assert not HostOutputs.objects.exists() and not Bucket.objects.exists()
    told = [found.text for found in output_directories.advice_of(job)]
    assert not [text for text in told if "no bucket" in text or "files of its own" in text]


def test_a_bucket_of_another_project_is_not_opened_by_its_name(add_files, begin, share):
    host = add_files()
    other = Project.objects.create(name="other", created_at=timezone.now())
    for name in ("theirs-1", "theirs-2"):
        buckets.create(other, name, "bob", timezone.now())
    share(theirs_1="/data/theirs", every="/data/all")
    job = begin(host, command="train --data gs://theirs-1/x --more /gcs/theirs-2/y")
    assert order()["buckets"] == {"bucket-1": "/data/all/bucket-1"}
    told = " ".join(found.text for found in output_directories.advice_of(job))
    assert "no bucket theirs-1" in told and "no bucket theirs-2" in told


def test_a_job_cannot_write_into_the_shared_directory_of_another_projects_bucket(add_files, begin, share):
    host = add_files()
    other = Project.objects.create(name="other", created_at=timezone.now())
    buckets.create(other, "bucket-1", "bob", timezone.now())
    share(every="/data/all")
    with pytest.raises(Refused, match="bucket-1 is not one of project default"):
        begin(host)


def test_only_the_buckets_that_are_not_shared_are_stored(add_files, begin, share):
    host = add_files()
    share(other_bucket="/data/other")
    begin(host, command="train --data gs://other-bucket/x")
    assert order()["buckets"] == {"bucket-1": "", "other-bucket": "/data/other"}
    assert HostOutputs.objects.get().addresses == [["bucket-1", "run"]]


@pytest.mark.parametrize(
    "asked",
    [
        {"bucket-1": "relative"},
        {"bucket-1": ""},
        {"bucket-1": "/data/../etc"},
        {"bucket-1": "/"},
        {"bucket-1": "/a//b"},
        {"bucket-1": "/a\nb"},
        {"Bad Name": "/data"},
        {"*": "/" + "x" * 600},
    ],
)
def test_a_directory_that_makes_no_sense_is_refused(add_files, asked):
    add_files()
    with pytest.raises(Refused):
        location_storage.share(Location.objects.get(name="default"), asked, "alice", timezone.now())
    assert location_storage.directories(Location.objects.get(name="default")) == {}


def test_a_change_is_audited_with_what_was_before(add_files, share):
    add_files()
    share(every="/data")
    share(every="/data")
    share(bucket_1="/one")
    entries = AuditEntry.objects.filter(what="location.storage").order_by("pk")
    assert [(entry.before, entry.after) for entry in entries] == [
        ({}, {"*": "/data"}),
        ({"*": "/data"}, {"bucket-1": "/one"}),
    ]


def test_lines_that_a_person_types(share):
    assert location_storage.parse_lines("bucket-1  /data/x y \n\n* /all\n") == {
        "bucket-1": "/data/x y",
        "*": "/all",
    }
    with pytest.raises(Refused, match="twice"):
        location_storage.parse_lines("* /a\n* /b")
