"""Reads have an ETag; who asks again with it gets 304, until something changes or the permission is gone."""

from __future__ import annotations

import pytest

from tests.unit.console.api.conftest import ALL, JOBS
from tests.unit.console.views.example_rows import a_job

pytestmark = pytest.mark.django_db


def read(client, path, etag=None):
    return client.get(path, headers={"if-none-match": etag} if etag else {})


@pytest.mark.parametrize("path", [JOBS + "/{id}", ALL, "/api/v1/jobs/{id}", "/api/v1/projects"])
def test_what_has_not_changed_is_not_sent_again(script, cast, project, path):
    path = path.format(id=a_job(project, cast.bob, state="QUEUED").pk)
    first = read(script("vera"), path)
    again = read(script("vera"), path, first["ETag"])
    assert first["ETag"].startswith('W/"') and first["Cache-Control"] == "private, no-cache"
    assert "Authorization" in first["Vary"]
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert read(script("vera"), path, 'W/"other"').status_code == 200


def test_a_change_changes_it(script, cast, project):
    job = a_job(project, cast.bob, state="QUEUED")
    bob = script("bob")
    before = read(bob, f"{JOBS}/{job.pk}")
    bob.post(f"{JOBS}/{job.pk}:cancel")
    after = read(bob, f"{JOBS}/{job.pk}", before["ETag"])
    assert after.status_code == 200 and after["ETag"] != before["ETag"]


def test_an_etag_opens_no_door(script, cast, project):
    job = a_job(project, cast.bob)
    etag = read(script("bob"), f"{JOBS}/{job.pk}")["ETag"]
    assert read(script("charlie"), f"{JOBS}/{job.pk}", etag).status_code == 404
    assert read(script(), f"{JOBS}/{job.pk}", "*").status_code == 401


def test_refusals_and_acts_have_none(script, cast, project):
    job = a_job(project, cast.bob, state="QUEUED")
    assert "ETag" not in read(script("bob"), f"{JOBS}/12345")
    assert "ETag" not in script("bob").post(f"{JOBS}/{job.pk}:cancel")
