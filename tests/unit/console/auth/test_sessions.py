"""A session belongs to a person, and an ended session never comes back."""

from __future__ import annotations

import threading
from importlib import import_module

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore as OldStore
from django.contrib.sessions.models import Session as OldSession
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from console.auth import accounts, sessions
from console.consumers import credentials
from console.models import Session
from tests.unit.console.views.conftest import PASSWORD, cast, project

__all__ = ["cast", "project"]


def logged_in(name="bob"):
    client = Client()
    assert client.post("/login", {"username": name, "password": PASSWORD}).status_code == 302
    return client


def is_in(client):
    return client.get("/account").status_code == 200


def socket_of(client):
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    return {"headers": [(b"cookie", cookie.encode())]}


def test_the_sessions_of_a_disabled_person_stay_dead_when_the_person_is_enabled_again(cast):
    bob, bella, now = logged_in(), logged_in("bella"), timezone.now()
    scope = socket_of(bob)
    assert is_in(bob) and credentials.user(scope) == cast.bob
    accounts.disable(cast.bob, "root", now)
    assert not is_in(bob) and credentials.user(scope) is None
    accounts.enable(cast.bob, "root", now)
    assert not is_in(bob) and credentials.user(scope) is None
    assert is_in(bella) and is_in(logged_in())


def test_a_request_that_still_holds_an_ended_session_cannot_save_it_again(cast):
    bob = logged_in()
    held = import_module("console.auth.session_store").SessionStore(bob.session.session_key)
    held["theme"] = "dark"
    sessions.end_all(cast.bob, timezone.now())
    with pytest.raises(UpdateError):
        held.save()
    assert not Session.objects.exists()


def test_a_person_who_was_disabled_while_the_password_was_checked_is_not_logged_in(cast, monkeypatch):
    def slow(request, **typed):
        User.objects.filter(pk=cast.bob.pk).update(is_active=False)
        return cast.bob

    monkeypatch.setattr("django.contrib.auth.authenticate", slow)
    client = Client()
    answer = client.post("/login", {"username": "bob", "password": PASSWORD})
    assert "was disabled at this moment" in answer.content.decode()
    assert not Session.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_login_and_a_disable_at_the_same_time_leave_no_session(cast):
    """Whichever comes first: the session is not made, or it is ended."""
    for _ in range(5):
        start = threading.Barrier(2)

        def log_in(start=start):
            start.wait(30)
            Client().post("/login", {"username": "bob", "password": PASSWORD})
            connection.close()

        thread = threading.Thread(target=log_in)
        thread.start()
        start.wait(30)
        with transaction.atomic():
            accounts.disable(cast.bob, "root", timezone.now())
        thread.join(60)
        assert not Session.objects.filter(user=cast.bob).exists()
        accounts.enable(cast.bob, "root", timezone.now())


def test_sessions_of_before_the_upgrade_move_over_with_their_owner(cast):
    def stored(user_id):
        old = OldStore()
        old["_auth_user_id"] = str(user_id)
        old.save()
        return old.session_key

    bob, ghost = stored(cast.bob.pk), stored(987_654)
    import_module("console.migrations.0002_sessions_with_owner").move(apps, None)
    assert Session.objects.get().user == cast.bob and Session.objects.get().session_key == bob
    assert ghost and not OldSession.objects.exists()
    import_module("console.migrations.0014_digests_of_sessions").hide(apps, None)
    store = import_module("console.auth.session_store").SessionStore(bob)
    assert store["_auth_user_id"] == str(cast.bob.pk)


def test_who_reads_the_table_of_sessions_gets_in_nowhere(cast):
    bob = logged_in()
    row = Session.objects.get()
    assert bob.session.session_key not in str(Session.objects.values().get())
    assert sessions.user_of(row.pk) is None and sessions.user_of_row(row) == cast.bob
    thief = Client()
    thief.cookies[settings.SESSION_COOKIE_NAME] = row.pk
    assert not is_in(thief) and credentials.user(socket_of(thief)) is None
    bob.post("/logout")
    assert not Session.objects.exists()


def test_a_row_whose_time_is_over_is_nobodys(cast):
    logged_in()
    Session.objects.update(expire_date=timezone.now())
    assert sessions.user_of_row(Session.objects.get()) is None
