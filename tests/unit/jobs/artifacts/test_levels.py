"""People are told when the files of their project reach 80, 95 and 100 % of its quota, once each."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra.clock import Clock
from jobs import sweep
from jobs.artifacts import levels, objects
from jobs.models import FileStorage, Membership, Notification, NotificationTarget, Role
from jobs.models.notifications import Way
from jobs.notifications import targets
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.unit.jobs.artifacts.test_blobs import limit, put

pytestmark = pytest.mark.django_db


def measured():
    return [(each.project.name, each.level) for each in levels.measure()]


def test_each_level_is_told_once(project, bucket):
    limit(project, 0.00001)
    assert measured() == []
    put(bucket, "a", b"x" * 8_000)
    assert measured() == [("default", 80)]
    assert measured() == []
    put(bucket, "b", b"y" * 2_000)
    assert measured() == [("default", 100)]
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", None, "root", timezone.now())
    assert measured() == [] and not FileStorage.objects.exists()


def test_what_goes_down_a_little_and_up_again_is_told_once(project, bucket):
    limit(project, 0.00001)
    put(bucket, "a", b"x" * 7_950)
    small = put(bucket, "b", b"y" * 60)
    assert measured() == [("default", 80)]
    objects.delete_object(small, "alice", timezone.now())
    small.blob.delete()
    assert measured() == []
    put(bucket, "b", b"z" * 60)
    assert measured() == []


def test_admins_of_the_project_and_its_addresses_get_it(project, bucket, alice):
    boss = User.objects.create_user("boss", email="boss@example.org")
    Membership.objects.create(project=project, user=boss, role=Role.ADMIN)
    for person in (boss, alice):
        address = f"{person.username}@example.org"
        made, _ = targets.add(person, Way.MAIL, address, ("file_storage",), 1.0, "x", timezone.now())
        NotificationTarget.objects.filter(pk=made.pk).update(confirmed_at=timezone.now())
    limit(project, 0.00001)
    put(bucket, "a", b"x" * 9_600)
    sweep.measure_files(Clock(timezone.now()))
    [told] = Notification.objects.filter(event="file_storage")
    assert told.target.user == boss
    assert told.text["title"] == "Project default: its files have reached 95 % of their limit"
    assert "outputs of jobs stay on their hosts" in told.text["text"]
    assert told.text["data"]["percent"] == 95
