"""Deleting a person: only when disabled and without unfinished jobs; what others need of them stays."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import accounts, tokens
from console.models import ApiToken
from jobs.models import AuditEntry, Job, Membership, NotificationTarget, Transition
from jobs.notifications import targets
from tests.unit.console.api.conftest import script
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "project", "script"]


def delete(user):
    with transaction.atomic():
        accounts.delete(user, "root", timezone.now())


def test_only_a_disabled_person_without_unfinished_jobs_is_deleted(cast, project):
    job = a_job(project, cast.bob, host=a_host())
    with pytest.raises(Refused, match="is not disabled"):
        delete(cast.bob)
    accounts.disable(cast.bob, "root", timezone.now())
    with pytest.raises(Refused, match="1 job of bob is not over"):
        delete(cast.bob)
    assert User.objects.filter(username="bob").exists()
    Job.objects.filter(pk=job.pk).update(state="FAILED")
    delete(cast.bob)
    assert not User.objects.filter(username="bob").exists()


def test_jobs_and_histories_keep_the_name_and_everything_personal_goes(cast, project, browser):
    now = timezone.now()
    job = a_job(project, cast.bob, host=a_host(), state="SUCCEEDED")
    lines = Transition.objects.filter(job=job).count()
    tokens.create(cast.bob, "ci", now)
    targets.add(cast.bob, "slack", "https://x.example/", [], 1.0, "bob", now)
    accounts.disable(cast.bob, "root", now)
    delete(cast.bob)
    job.refresh_from_db()
    assert (job.owner_id, job.owner_name) == (None, "bob")
    assert Transition.objects.filter(job=job).count() == lines
    assert not ApiToken.objects.exists() and not NotificationTarget.objects.exists()
    assert not Membership.objects.filter(user_id=cast.bob.pk).exists()
    entry = AuditEntry.objects.get(what="user.delete")
    assert (entry.actor, entry.subject) == ("root", "bob")
    assert entry.before == {"admin": False, "roles": {"default": "submitter"}}
    assert "bob" in browser("alice").get(f"/jobs/{job.pk}/").content.decode()


def test_somebody_with_the_name_of_a_deleted_person_owns_nothing_of_theirs(cast, project, script, browser):
    job = a_job(project, cast.bob, host=a_host(), state="SUCCEEDED")
    accounts.disable(cast.bob, "root", timezone.now())
    delete(cast.bob)
    other = accounts.add(
        "bob", password="another fine password", admin=False, actor="root", now=timezone.now()
    )
    client = browser()
    client.force_login(other)
    assert client.post(f"/jobs/{job.pk}/delete").status_code == 403


def test_the_page_and_the_api_delete(cast, browser, script):
    root, rest = browser("root"), script("root")
    page = root.post(f"/admin/people/{cast.bob.pk}/delete", follow=True).content.decode()
    assert "is not disabled" in page
    answer = rest.delete("/api/v1/people/bob")
    assert answer.status_code == 400 and "is not disabled" in answer.json()["error"]["message"]
    accounts.disable(cast.bob, "root", timezone.now())
    assert "bob is deleted" in root.post(f"/admin/people/{cast.bob.pk}/delete", follow=True).content.decode()
    assert rest.delete("/api/v1/people/gone").status_code == 200
    assert not User.objects.filter(username__in=("bob", "gone")).exists()
    assert rest.delete("/api/v1/people/bob").status_code == 404
