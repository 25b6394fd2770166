"""A token ends at its time and with its owner's password; page, REST and command line say when."""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import accounts, tokens
from console.cli import main
from console.consumers import credentials
from console.models import ApiToken
from jobs.models import AuditEntry
from tests.unit.console.api.conftest import script
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project", "script"]

DAY = timedelta(days=1)
JSON = {"content_type": "application/json"}
NEW = "another fine password"


def told(what):
    return list(AuditEntry.objects.filter(what=what).values_list("actor", "subject", "before", "after"))


def test_a_token_ends_at_its_time_for_rest_and_sockets(cast):
    now = timezone.now()
    row, token = tokens.create(cast.bob, "ci", now - 10 * DAY, days=10.0001)
    scope = {"headers": [(b"authorization", f"Bearer {token}".encode())]}
    client = Client(headers={"authorization": f"Bearer {token}"})
    answer = client.get("/api/v1/projects")
    assert answer.status_code == 200 and credentials.user(scope) == cast.bob
    assert answer["Trainyard-Token-Expires"].startswith(f"{row.expires_at:%Y-%m-%dT%H:%M:%S}")
    ApiToken.objects.filter(pk=row.pk).update(expires_at=now - DAY)
    answer = client.get("/api/v1/projects")
    assert answer.status_code == 401 and credentials.user(scope) is None
    assert f"“ci” expired on {now - DAY:%Y-%m-%d}" in answer.json()["error"]["message"]


@pytest.mark.parametrize("days", [0, -1, 367, float("nan")])
def test_a_token_for_too_long_or_for_no_time_is_refused(cast, days):
    with pytest.raises(Refused, match="1 to 366 days"):
        tokens.create(cast.bob, "ci", timezone.now(), days=days)


@pytest.mark.parametrize("way", ["page", "rest", "command"])
def test_no_token_is_made_by_a_request_that_was_let_in_before_the_password_changed(
    cast, browser, script, monkeypatch, capsys, way
):
    """The password changes after the person was read, before the token is made."""
    make, words = tokens.create, "The password was changed"

    def late(user, *given, **named):
        accounts.set_password(User.objects.get(pk=user.pk), NEW, "root", timezone.now())
        return make(user, *given, **named)

    client = browser("bob") if way == "page" else script("bob", elevated=True)
    monkeypatch.setattr(tokens, "create", late)
    if way == "page":
        assert words in client.post("/account/tokens", {"name": "ci"}).content.decode()
    elif way == "rest":
        answer = client.post("/api/v1/tokens", {"name": "ci"}, **JSON)
        assert answer.status_code == 400 and words in answer.json()["error"]["message"]
    else:
        assert main(["token", "create", "bob"]) == 1
        assert words in capsys.readouterr().err
    assert not ApiToken.objects.filter(user=cast.bob, revoked_at=None).exclude(name="test").exists()


@pytest.mark.django_db(transaction=True)
def test_a_new_password_waits_for_a_token_that_is_being_made_and_revokes_it(cast):
    made, found = threading.Event(), []

    def make():
        with transaction.atomic():
            found.append(tokens.create(cast.bob, "ci", timezone.now())[1])
            made.set()
            time.sleep(0.5)
        connection.close()

    making = threading.Thread(target=make)
    making.start()
    assert made.wait(30)
    with transaction.atomic():
        accounts.set_password(User.objects.get(pk=cast.bob.pk), NEW, "root", timezone.now())
    making.join(30)
    assert tokens.owner(found[0], timezone.now()) is None


@pytest.mark.parametrize("by", ["page", "admin", "link"])
def test_a_new_password_revokes_the_tokens_and_ends_the_sessions(cast, browser, by):
    bob, other = browser("bob"), browser("bob")
    _, token = tokens.create(cast.bob, "ci", timezone.now())
    if by == "page":
        form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
        page = bob.post("/account/password", form, follow=True).content.decode()
        assert "Your token is revoked." in page
        assert ("bob", "bob", None, None) in told("user.password")
    elif by == "admin":
        assert accounts.set_password(cast.bob, NEW, "root", timezone.now()) == 1
    else:
        link = accounts.invite(cast.bob, "root", timezone.now())
        bob.post(f"/invited/{link}", {"password": NEW, "again": NEW})
    assert tokens.owner(token, timezone.now()) is None
    assert other.get("/account").status_code == 302
    assert [row[1] for row in told("token.revoke")] == ["bob"]


def test_the_page_shows_the_end_of_each_token_and_warns_before_it(cast, browser):
    now, bob = timezone.now(), browser("bob")
    tokens.create(cast.bob, "for long", now, days=300)
    assert "ends soon" not in bob.get("/account").content.decode()
    tokens.create(cast.bob, "not for long", now - 85 * DAY)
    old, _ = tokens.create(cast.bob, "of old", now)
    ApiToken.objects.filter(pk=old.pk).update(expires_at=now - DAY)
    page = bob.get("/account").content.decode()
    assert page.count("ends soon") == 1 and page.count("expired</span>") == 1


def test_a_token_is_made_on_the_page_for_the_time_that_was_chosen(cast, browser):
    bob = browser("bob")
    bob.post("/account/tokens", {"name": "ci", "days": "30"})
    row = ApiToken.objects.get()
    assert abs(row.expires_at - timezone.now() - 30 * DAY) < timedelta(minutes=5) and not row.elevated
    ((actor, subject, before, after),) = told("token.make")
    assert (actor, subject, before, after["name"]) == ("bob", "bob", None, "ci")
    assert "choose" in bob.post("/account/tokens", {"name": "x", "days": "9999"}).content.decode().lower()
    bob.post(f"/account/tokens/{row.pk}/revoke")
    assert [(one[0], one[2]["name"]) for one in told("token.revoke")] == [("bob", "ci")]


def test_a_script_lists_makes_and_revokes_its_owners_tokens(cast, script):
    bob = script("bob", elevated=True)
    answer = bob.post("/api/v1/tokens", {"name": "nightly", "days": 3}, **JSON)
    made = answer.json()
    assert answer["Cache-Control"] == "no-store" and tokens.owner(made["token"], timezone.now()) == cast.bob
    listed = bob.get("/api/v1/tokens").json()["tokens"]
    assert {one["name"] for one in listed} == {"test", "nightly"} and made["token"] not in str(listed)
    assert all(one["expireTime"] for one in listed)
    assert script("bella").delete(f"/api/v1/tokens/{made['id']}").status_code == 404
    assert bob.delete(f"/api/v1/tokens/{made['id']}").status_code == 200
    assert tokens.owner(made["token"], timezone.now()) is None
    for body, field in (
        ({"name": ""}, "name"),
        ({"name": "x", "days": 0}, "days"),
        ({"name": "x", "days": "9"}, "days"),
    ):
        error = bob.post("/api/v1/tokens", body, **JSON)
        assert error.status_code == 400
        assert error.json()["error"]["details"][0]["fieldViolations"][0]["field"] == field


def test_no_token_is_in_the_audit(cast, browser):
    page = browser("bob").post("/account/tokens", {"name": "ci"}).content.decode()
    (token,) = set(re.findall(r"tyd_[\w-]{40,}", page))
    everything = str(list(AuditEntry.objects.values()))
    assert token not in everything and tokens.digest(token) not in everything
