"""The locks between two people who act at the same time, each with the race that it is for.

See tests/unit/jobs/test_forced_races.py.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import accounts, tokens
from console.auth.login import login_audit
from console.models import LoginTally, Session
from jobs.models import AuditEntry
from tests.harness.races import race
from tests.unit.console.views.conftest import PASSWORD, cast, project

__all__ = ["cast", "project"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


def whole(act, *args, **options):
    def acts():
        with transaction.atomic():
            return act(*args, **options)

    return acts


def test_two_admins_who_take_each_others_rights_leave_one_admin(cast):
    User.objects.filter(pk=cast.alice.pk).update(is_superuser=True)
    root, alice = (User.objects.get(username=name) for name in ("root", "alice"))
    takes = [whole(accounts.set_admin, each, False, "x", timezone.now()) for each in (root, alice)]
    results = race(*takes, before="UPDATE auth_user is_superuser")
    assert results[0] is None and isinstance(results[1], Refused)
    assert User.objects.filter(is_superuser=True).count() == 1


def test_a_login_beside_a_disable_leaves_no_session(cast):
    def log_in():
        return Client().post("/login", {"username": "bob", "password": PASSWORD}).status_code

    disable = whole(accounts.disable, cast.bob, "root", timezone.now())
    race(log_in, disable, before="INSERT console_session")
    assert not Session.objects.filter(user=cast.bob).exists()


def test_a_token_that_is_made_beside_a_disable_is_not_valid(cast):
    make = whole(tokens.create, cast.bob, "ci", timezone.now())
    disable = whole(accounts.disable, cast.bob, "root", timezone.now())
    (_, token), _ = race(make, disable, before="INSERT console_apitoken")
    assert tokens.owner(token, timezone.now()) is None
    accounts.enable(cast.bob, "root", timezone.now())
    assert tokens.owner(token, timezone.now()) is None


def failure(at):
    return partial(login_audit._count, login_audit.FAILED, "bob", "1.2.3.4", at)


@pytest.fixture
def hour(cast):
    """Two failures in an hour: the first is in the audit, the second is only counted. Returns when the hour is over."""
    begun = timezone.now()
    failure(begun)()
    failure(begun)()
    return begun + login_audit.FOLDED_FOR


def written():
    """How many failures the audit tells of, entry by entry."""
    entries = AuditEntry.objects.filter(what=login_audit.FAILED).order_by("pk")
    return [entry.after.get("times", 1) for entry in entries]


# The failure of a moment earlier was on its way while the hour ended.
@pytest.mark.parametrize("early", [timedelta(0), timedelta(milliseconds=1)])
def test_a_failure_that_comes_while_an_hour_is_folded_is_counted(hour, early):
    folded = partial(login_audit.fold, hour)
    assert race(folded, failure(hour - early), before="DELETE console_logintally") == (None, None)
    assert written() == [1, 1, 1] and LoginTally.objects.get().since == hour - early


def test_two_first_failures_of_a_new_hour_are_counted_once_each(hour):
    assert race(failure(hour), failure(hour), before="DELETE console_logintally") == (None, None)
    row = LoginTally.objects.get()
    assert (row.since, row.more) == (hour, 1)
    assert written() == [1, 1, 1], "what was counted in the first hour was written twice"


def test_a_token_that_two_revoke_is_revoked_once(cast):
    row, _ = tokens.create(cast.bob, "ci", timezone.now())
    revoke = whole(tokens.revoke, cast.bob, row.pk, timezone.now())
    assert race(revoke, revoke, after="UPDATE console_apitoken revoked_at") == (True, False)
    assert AuditEntry.objects.filter(what="token.revoke").count() == 1
