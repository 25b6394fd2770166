"""Login: the setup link works once, wrong passwords slow the login, tokens are shown once."""

from __future__ import annotations

import re
import threading
from datetime import timedelta

import pytest
from django.contrib import auth
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from console.auth import accounts, setup, tokens
from console.auth.login import throttle
from console.models import ApiToken
from tests.unit.console.views.conftest import PASSWORD

NEW = "a fine long password"


@pytest.fixture
def link(project):
    return f"/setup/{setup.renew(timezone.now())}"


def typed(**changes):
    return {"username": "ada", "password": NEW, "again": NEW, **changes}


def test_the_first_admin_sets_up_an_account_and_is_logged_in(client, link):
    answer = client.post(link, typed(), follow=True)
    assert "The first five minutes" in answer.content.decode()
    ada = User.objects.get()
    assert ada.is_superuser and ada.check_password(NEW) and answer.context["user"] == ada


def test_the_setup_link_works_once(client, link):
    client.post(link, typed())
    client.logout()
    for answer in (client.get(link), client.post(link, typed(username="eve"))):
        assert answer.status_code == 404 and "set up already" in answer.content.decode()
    assert User.objects.count() == 1


def test_only_the_newest_setup_link_works(client, link):
    setup.renew(timezone.now())
    answer = client.get(link)
    assert answer.status_code == 404 and "prints a new link" in answer.content.decode()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"username": ""}, "username"),
        ({"username": "a b"}, "username"),
        ({"password": "short", "again": "short"}, "password"),
        ({"password": "password123", "again": "password123"}, "password"),
        ({"again": "something else"}, "again"),
    ],
)
def test_a_refused_setup_form_shows_its_errors_and_the_link_stays_valid(client, link, change, field):
    answer = client.post(link, typed(**change))
    assert answer.context["form"].errors[field] and not User.objects.exists()
    assert client.post(link, typed()).status_code == 302


def test_a_new_password_with_two_faults_is_told_both(client, link, cast, browser):
    """Whoever mends only the first would be refused once more."""
    invited = f"/invited/{accounts.invite(cast.vera, 'root', timezone.now())}"
    short = {"new_password1": "short", "new_password2": "other"}
    for page, form in (
        (client.post(invited, {"password": "short", "again": "other"}), "form"),
        (browser("bob").post("/account/password", {"old_password": PASSWORD, **short}), "password"),
    ):
        told = str(page.context[form].errors)
        assert "too short" in told and "two passwords differ" in told
    User.objects.filter(is_superuser=True).delete()
    errors = client.post(link, typed(password="short", again="other")).context["form"].errors
    assert "too short" in str(errors["password"]) and "two passwords differ" in str(errors["again"])


def test_the_login_page_says_that_trainyard_is_not_set_up(client, link):
    assert "one-time setup link" in client.get("/login").content.decode()


def enter(client, name="bob", password=PASSWORD, **more):
    return client.post("/login", {"username": name, "password": password, **more})


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ("/hosts/", "/hosts/"),
        ("", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_login_redirects_to_pages_of_trainyard_only(client, cast, wanted, where):
    assert enter(client, next=wanted)["Location"] == where


@pytest.mark.parametrize("who", [{"name": "bob", "password": "wrong"}, {"name": "ghost"}, {"name": "gone"}])
def test_a_failed_login_does_not_say_whether_name_or_password_was_wrong(client, cast, who):
    answer = enter(client, **who)
    assert (
        "The name or the password is wrong" in answer.content.decode()
        and not answer.wsgi_request.user.is_authenticated
    )


def test_password_guessing_is_slowed_for_each_name_and_address(client, cast):
    for _ in range(throttle.TRIES_OF_PAIR):
        enter(client, password="guess")
    assert "Too many wrong passwords" in enter(client).content.decode()
    # Neither the same person elsewhere nor another one here is locked out.
    assert (
        client.post("/login", {"username": "bob", "password": PASSWORD}, REMOTE_ADDR="10.1.1.1").status_code
        == 302
    )
    assert enter(client, name="alice").status_code == 302


def test_the_login_lock_ends_after_its_time(db):
    now = timezone.now()
    for second in range(throttle.TRIES_OF_PAIR):
        assert not throttle.attempt("bob", "10.0.0.1", now + timedelta(seconds=second))
    assert throttle.attempt("bob", "10.0.0.1", now + timedelta(seconds=10)) > timedelta(minutes=9)
    assert not throttle.attempt("bob", "10.0.0.1", now + throttle.WINDOW)


@pytest.mark.django_db(transaction=True)
def test_parallel_guesses_are_limited_like_sequential_ones(cast, monkeypatch):
    """Each attempt is counted before its password is checked."""
    looked, crowd = [], threading.Barrier(12)
    monkeypatch.setattr(auth, "authenticate", lambda request, **who: looked.append(who))

    def guess():
        crowd.wait(30)
        try:
            enter(Client(), password="guess")
        finally:
            connection.close()

    threads = [threading.Thread(target=guess) for _ in range(crowd.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(looked) <= throttle.TRIES_OF_PAIR


def test_one_address_cannot_try_all_names(db):
    now = timezone.now()
    for number in range(throttle.TRIES_OF_ADDRESS):
        throttle.attempt(f"name{number}", "10.0.0.1", now)
    assert throttle.attempt("fresh", "10.0.0.1", now) and not throttle.attempt("fresh", "10.0.0.2", now)


def test_logout_requires_a_post(browser):
    bob = browser("bob")
    assert bob.get("/logout").status_code == 405
    bob.post("/logout")
    assert bob.get("/account").status_code == 302


def test_the_theme_is_kept_in_the_browser(browser):
    bob = browser("bob")
    assert bob.post("/theme", {"theme": "dark", "next": "/account"})["Location"] == "/account"
    assert '<html lang="en-GB" data-theme="dark">' in bob.get("/account").content.decode()
    bob.post("/theme", {"theme": '"><script>'})
    assert '<html lang="en-GB" data-theme="dark">' in bob.get("/account").content.decode()
    bob.cookies["theme"] = '"><script>alert(1)</script>'
    assert "<script>alert" not in bob.get("/account").content.decode()


def test_a_token_is_shown_once_and_works_until_revoked(browser, cast):
    bob = browser("bob")
    answer = bob.post("/account/tokens", {"name": "laptop"})
    (token,) = set(re.findall(r"tyd_[\w-]{40,}", answer.content.decode()))
    assert tokens.owner(token, timezone.now()) == cast.bob and "no-store" in answer["Cache-Control"]
    page = bob.get("/account").content.decode()
    assert token not in page and "laptop" in page
    row = ApiToken.objects.get()
    assert browser("bella").post(f"/account/tokens/{row.pk}/revoke").status_code == 404
    bob.post(f"/account/tokens/{row.pk}/revoke")
    assert tokens.owner(token, timezone.now()) is None


def test_a_new_password_ends_the_other_sessions(cast):
    here, there = Client(), Client()
    for client in (here, there):
        assert enter(client).status_code == 302
    wrong = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}
    assert "The password is wrong" in here.post("/account/password", wrong).content.decode()
    assert here.post("/account/password", {**wrong, "old_password": PASSWORD})["Location"] == "/account"
    assert here.get("/account").status_code == 200
    assert there.get("/account").status_code == 302
