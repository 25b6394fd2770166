"""Acts that give rights away ask for the password again after an hour; scripts need a token that was made for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agents.models import Host
from console.auth import tokens
from console.auth.login import confirmation, throttle
from console.models import ApiToken, Invitation
from jobs.models import Membership, Role
from tests.unit.console.api.conftest import script
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project
from tests.unit.console.views.example_rows import a_host

__all__ = ["browser", "cast", "project", "script"]

ASKS = "type your password again"
JSON = {"content_type": "application/json"}


@pytest.fixture
def admin(cast, browser):
    """A client of the admin, who gave the password a little more than an hour ago."""
    cast.root.set_password(PASSWORD)
    cast.root.save()
    return browser("root", given_at=timezone.now() - confirmation.GOOD_FOR - timedelta(seconds=5))


@pytest.fixture
def acts(cast):
    """Each act that asks: its address, its form, and how its success shows."""
    Host.objects.filter(pk=a_host().pk).update(offered_key="ssh-ed25519 AAAA", pinned_key="")
    host = Host.objects.get()
    return {
        "token": ("/account/tokens", {"name": "ci", "days": "7"}, ApiToken.objects.exists),
        "rights": (
            f"/admin/people/{cast.bob.pk}/admin",
            {"admin": "1"},
            lambda: User.objects.get(pk=cast.bob.pk).is_superuser,
        ),
        "link": (f"/admin/people/{cast.bob.pk}/invite", {}, Invitation.objects.exists),
        "key": (
            f"/hosts/{host.pk}/accept",
            {"fingerprint": "SHA256:Dq0G00bFHn4Pe6gWWj1RYYF8xhf8EpYt+Y5K8AcpJJE"},
            lambda: False,
        ),
        "project": (
            "/projects/default/members",
            {"user": "bob", "role": "admin"},
            Membership.objects.filter(user=cast.bob, role=Role.ADMIN).exists,
        ),
        "admin": ("/admin/people/add", {"username": "zoe", "admin": "on"}, _exists("zoe")),
    }


def _exists(name):
    return lambda: User.objects.filter(username=name).exists()


@pytest.mark.parametrize("what", ["token", "rights", "link", "key", "project", "admin"])
def test_an_act_asks_again_after_an_hour_and_goes_on_with_what_was_typed(admin, acts, what):
    path, form, done = acts[what]
    page = admin.post(path, form).content.decode().lower()
    assert ASKS in page or "type it again" in page
    assert not done()
    wrong = admin.post(path, {**form, "confirm_password": "wrong"}).content.decode()
    assert "The password is wrong." in wrong and not done()
    for name, value in form.items() if what != "admin" else ():
        assert f'name="{name}" value="{value}"' in wrong
    right = admin.post(path, {**form, "confirm_password": PASSWORD}, follow=True).content.decode()
    assert ASKS not in right
    assert done() or what == "key"
    # It counts for an hour.
    assert ASKS not in admin.post(path, form).content.decode()


@pytest.mark.parametrize("ago", [timedelta(), timedelta(minutes=59)])
def test_within_the_hour_nothing_is_asked(cast, browser, acts, ago):
    root = browser("root", given_at=timezone.now() - ago)
    path, form, done = acts["rights"]
    root.post(path, form)
    assert done()


def test_a_session_without_a_time_or_with_one_in_the_future_is_asked(cast, browser, acts):
    path, form, done = acts["rights"]
    assert (
        ASKS in browser("root", given_at=timezone.now() + timedelta(days=1)).post(path, form).content.decode()
    )
    client = Client()
    client.force_login(cast.root)
    assert ASKS in client.post(path, form).content.decode() and not done()


def test_a_login_counts_as_the_password(cast):
    client = Client()
    client.post("/login", {"username": "bob", "password": PASSWORD})
    assert "tyd_" in client.post("/account/tokens", {"name": "ci"}).content.decode()


def test_the_second_asking_is_throttled_like_the_login(admin, acts):
    path, form, done = acts["rights"]
    for _ in range(throttle.TRIES_OF_PAIR):
        admin.post(path, {**form, "confirm_password": "guess"})
    late = admin.post(path, {**form, "confirm_password": PASSWORD}).content.decode()
    assert "Too many wrong passwords" in late and not done()


def test_the_old_password_is_throttled_like_the_login(cast, browser):
    bob, new = browser("bob"), "another fine password"
    form = {"old_password": "guess", "new_password1": new, "new_password2": new}
    for _ in range(throttle.TRIES_OF_PAIR):
        assert "The password is wrong" in bob.post("/account/password", form).content.decode()
    late = bob.post("/account/password", {**form, "old_password": PASSWORD}).content.decode()
    assert "Too many wrong passwords" in late
    assert User.objects.get(username="bob").check_password(PASSWORD)


def test_a_person_without_the_right_is_refused_and_not_asked(cast, browser):
    late = timezone.now() - timedelta(days=1)
    host = a_host()
    assert browser("bob", given_at=late).post(f"/hosts/{host.pk}/accept").status_code == 403
    assert browser("bob", given_at=late).post(f"/admin/people/{cast.vera.pk}/admin").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/api/v1/tokens", {"name": "ci"}),
        ("patch", "/api/v1/people/bob", {"admin": True}),
        ("post", "/api/v1/people", {"name": "zoe", "admin": True}),
        ("post", "/api/v1/people/bob:invite", {}),
        ("put", "/api/v1/projects/default/members/bob", {"role": "admin"}),
    ],
)
def test_a_script_needs_a_token_that_was_made_for_such_acts(script, admin, method, path, body):
    usual, elevated = script("root"), script("root", elevated=True)
    refused = getattr(usual, method)(path, body, **JSON)
    assert refused.status_code == 403 and "--elevated" in refused.json()["error"]["message"]
    old = getattr(admin, method)(path, body, **JSON)
    assert old.status_code == 403 and "log in again" in old.json()["error"]["message"]
    assert not User.objects.filter(username="zoe").exists() and not Invitation.objects.exists()
    assert Membership.objects.get(user__username="bob").role == Role.SUBMITTER
    assert getattr(elevated, method)(path, body, **JSON).status_code == 200


def test_an_admin_of_a_project_is_asked_only_before_admin_rights_are_given(cast, browser, script):
    alice, path = browser("alice", given_at=timezone.now() - timedelta(days=1)), "/projects/default/members"
    assert ASKS in alice.post(path, {"user": "bob", "role": "admin"}).content.decode()
    assert ASKS not in alice.post(path, {"user": "bob", "role": "king"}).content.decode()
    assert ASKS not in alice.post(path, {"user": "unknown", "role": "admin"}).content.decode()
    for name, role in (("bob", "viewer"), ("charlie", "submitter"), ("alice", "admin")):
        assert alice.post(path, {"user": name, "role": role}).status_code == 302
        assert Membership.objects.get(project__name="default", user__username=name).role == role
    usual = script("alice")
    for name, role, status in (("bob", "submitter", 200), ("alice", "admin", 200), ("bob", "admin", 403)):
        assert usual.put(f"/api/v1{path}/{name}", {"role": role}, **JSON).status_code == status


def test_a_token_of_a_token_ends_with_it_at_latest(cast, script):
    now = timezone.now()
    _, parent = tokens.create(cast.bob, "short", now, days=2, elevated=True)
    client = Client(headers={"authorization": f"Bearer {parent}"})
    child = client.post("/api/v1/tokens", {"name": "child", "days": 300}, **JSON).json()
    assert tokens.owner(child["token"], now + timedelta(days=1)) == cast.bob
    assert tokens.owner(child["token"], now + timedelta(days=2, seconds=1)) is None
