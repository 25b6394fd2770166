"""Stored secrets: set, replaced, deleted, sealed to their owner, and in the audit by name only."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.infra.secrets import SecretUnreadable
from jobs.models import AuditEntry, Project, Secret
from jobs.secrets import store

CANARY = "canary-51e0c7a9"


def put(owner, name="HF", value=CANARY):
    return store.put(owner, name, value, "alice", timezone.now())


@pytest.fixture
def owners(project, alice):
    return project, alice


def test_a_secret_is_sealed_and_its_audit_has_no_value(owners):
    for owner in owners:
        row, new = put(owner)
        assert new and (row.name, row.changed_by) == ("HF", "alice")
        assert store.value_of(row) == CANARY and CANARY.encode() not in bytes(row.sealed)
    [of_project, of_person] = AuditEntry.objects.order_by("id")
    assert (of_project.what, of_project.subject, of_project.project) == ("secret.set", "HF", owners[0])
    assert (of_person.what, of_person.project) == ("secret.set", None)
    assert (of_project.before, of_project.after) == (None, None)


def test_a_new_value_replaces_the_old_one(project):
    put(project)
    row, new = put(project, value="another")
    assert not new and store.value_of(row) == "another" and Secret.objects.count() == 1
    assert AuditEntry.objects.latest("id").what == "secret.change"


def test_a_row_that_was_copied_over_another_cannot_be_opened(project, alice):
    """Whoever can write the database cannot move a person's secret to a project, or to another name."""
    mine, _ = put(alice)
    sealed = Secret.objects.get(pk=mine.pk).sealed
    theirs, _ = put(project, value="other")
    Secret.objects.filter(pk=theirs.pk).update(sealed=sealed)
    with pytest.raises(SecretUnreadable):
        store.value_of(Secret.objects.get(pk=theirs.pk))
    Secret.objects.filter(pk=mine.pk).update(name="OTHER")
    with pytest.raises(SecretUnreadable):
        store.value_of(Secret.objects.get(pk=mine.pk))


@pytest.mark.parametrize("name", ["", "1A", "a b", "a/b", "x" * 101, "é", "a:b"])
def test_a_name_that_cannot_be_referred_to_is_refused(project, name):
    with pytest.raises(Refused) as refused:
        put(project, name)
    assert refused.value.field == "name" and not Secret.objects.exists()


@pytest.mark.parametrize("value", ["", None, 7, f"{CANARY}\0", "x" * (64 * 1024 + 1), [CANARY]])
def test_a_value_that_no_variable_can_have_is_refused_without_repeating_it(project, value):
    with pytest.raises(Refused) as refused:
        put(project, value=value)
    assert refused.value.field == "value" and CANARY not in refused.value.message


def test_there_is_a_limit(project, alice, monkeypatch):
    monkeypatch.setattr(store, "MAX_SECRETS", 2)
    for name in ("A", "B"):
        put(project, name)
    with pytest.raises(Refused, match="2 secrets"):
        put(project, "C")
    put(project, "A", "replaced")
    put(alice, "C")


def test_a_deleted_secret_is_gone_and_the_audit_says_who(project):
    put(project)
    assert store.remove(project, "HF", "bob", timezone.now())
    assert not store.remove(project, "HF", "bob", timezone.now())
    last = AuditEntry.objects.latest("id")
    assert (last.what, last.actor, Secret.objects.count()) == ("secret.remove", "bob", 0)


def test_each_owner_has_names_of_their_own(project, alice):
    elsewhere = Project.objects.create(name="elsewhere", created_at=timezone.now())
    bob = User.objects.create_user("bob")
    for owner in (project, elsewhere, alice, bob):
        assert put(owner)[1]
    assert [row.name for row in store.of(bob)] == ["HF"] and Secret.objects.count() == 4
    bob.delete()
    assert Secret.objects.count() == 3
