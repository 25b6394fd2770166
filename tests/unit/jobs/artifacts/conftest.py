from __future__ import annotations

import shutil

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs import services
from jobs.artifacts import buckets, leftovers, storage, uploads
from jobs.models import Membership, Project, Role
from tests.unit.jobs.conftest import spec


@pytest.fixture(autouse=True)
def empty_storage():
    """Files of other tests are not there, nor what was noted about them."""
    _empty()
    yield
    _empty()


def _empty():
    leftovers.forget()
    uploads._seen.clear()
    shutil.rmtree(storage.store().path(""), ignore_errors=True)
    shutil.rmtree(storage.receiving_directory(), ignore_errors=True)


@pytest.fixture(autouse=True)
def time_is_kept(kept_time):
    """What is old may be deleted."""


@pytest.fixture
def project(db):
    return Project.objects.get(name="default")


@pytest.fixture
def other(db):
    return Project.objects.create(name="other", created_at=timezone.now())


@pytest.fixture
def alice(project):
    user = User.objects.create_user("alice")
    Membership.objects.create(project=project, user=user, role=Role.SUBMITTER)
    return user


@pytest.fixture
def bucket(project):
    return buckets.create(project, "first-bucket", "alice", timezone.now())


def files():
    """Every file that is stored or received, by what it is."""
    return sorted(storage.files()), sorted(path.name for path in storage.receiving_directory().iterdir())


@pytest.fixture
def submit_job(project, alice):
    def submit():
        return services.submit(project, alice, spec(), "default", None, timezone.now())

    return submit
