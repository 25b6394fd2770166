"""The setup link, accounts and tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from console.auth import accounts, setup, tokens
from console.auth.setup import SetupClosed
from console.models import ApiToken
from jobs.models import Membership

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def person(name, password, now):
    return accounts.add(name, password=password, admin=False, actor="root", now=now)


def test_the_setup_link_works_once_and_only_while_no_admin_exists():
    now = timezone.now()
    older, token = setup.renew(now), setup.renew(now)
    assert not setup.is_open(older)
    assert not setup.is_open("")
    assert setup.is_open(token)
    alice = setup.redeem(token, "alice", PASSWORD, now)
    assert alice.is_superuser and alice.check_password(PASSWORD)
    assert Membership.objects.get(user=alice).role == "admin"
    assert not setup.needed()
    for late in (token, older, setup.renew(now)):
        assert not setup.is_open(late)
        with pytest.raises(SetupClosed, match="not valid any more"):
            setup.redeem(late, "mallory", PASSWORD, now)
    assert not User.objects.filter(username="mallory").exists()


@pytest.mark.parametrize(
    ("name", "password", "words"),
    [
        ("bob", "short", "too short"),
        ("bob", "1234567890123", "numeric"),
        ("bob builder", PASSWORD, "valid username"),
        ("", PASSWORD, "blank"),
        ("alice", PASSWORD, "already exists"),
        ("x" * 151, PASSWORD, "150"),
        ("Trainyard", PASSWORD, "Choose another name"),
    ],
)
def test_a_bad_name_or_password_is_refused_with_the_reason(name, password, words):
    now = timezone.now()
    person("alice", PASSWORD, now)
    with pytest.raises(ValidationError) as refusal:
        person(name, password, now)
    assert words in accounts.error_text(refusal.value)
    assert User.objects.count() == 1


def test_a_token_is_valid_until_it_is_revoked_or_its_owner_disabled():
    now = timezone.now()
    alice = person("alice", PASSWORD, now)
    bob = person("bob", PASSWORD, now)
    row, token = tokens.create(alice, "ci", now)
    assert token not in str(ApiToken.objects.values())
    assert tokens.owner(token, now) == alice
    assert tokens.owner(token + "x", now) is None
    assert not tokens.revoke(bob, row.pk, now)
    alice.is_active = False
    alice.save()
    assert tokens.owner(token, now) is None
    alice.is_active = True
    alice.save()
    assert tokens.revoke(alice, row.pk, now)
    assert not tokens.revoke(alice, row.pk, now)
    assert tokens.owner(token, now) is None


def test_the_last_use_is_written_at_most_once_a_minute(django_assert_num_queries):
    now = timezone.now()
    row, token = tokens.create(person("alice", PASSWORD, now), "ci", now)
    tokens.owner(token, now)
    with django_assert_num_queries(1):
        tokens.owner(token, now + timedelta(seconds=59))
    tokens.owner(token, now + timedelta(seconds=61))
    row.refresh_from_db()
    assert row.last_used_at == now + timedelta(seconds=61)
