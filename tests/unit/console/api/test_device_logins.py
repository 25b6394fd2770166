"""Logins of the command line: a code that a person confirms on a page, and what the token of it may do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.auth import housekeeping, tokens
from console.auth.login import device_logins
from console.client import VERSION
from console.models import ApiToken, DeviceLogin
from jobs.models import AuditEntry

JSON = {"content_type": "application/json"}
PAGE = "/account/command-line/login"


@pytest.fixture
def begin(script):
    def ask(address="192.0.2.9", client="ada on laptop"):
        return script().post("/api/v1/deviceLogins", {"client": client}, REMOTE_ADDR=address, **JSON)

    return ask


@pytest.fixture
def take(script):
    def ask(begun):
        body = {"deviceCode": begun["deviceCode"]}
        return script().post("/api/v1/deviceLogins:token", body, **JSON)

    return ask


def confirm(page, begun, **fields):
    return page.post(PAGE, {"code": begun["userCode"], "scope": "submit", "days": "30", **fields})


def test_a_code_that_is_confirmed_gives_one_token_once(begin, take, browser, script, cast):
    begun = begin().json()
    assert take(begun).json() == {"state": "PENDING"}
    page = browser("bob")
    shown = page.get(begun["page"]).content.decode()
    assert begun["userCode"] in shown and "ada on laptop" in shown and "192.0.2.9" in shown
    assert confirm(page, begun, project="default").status_code == 302
    row = DeviceLogin.objects.get()
    answer = take(begun)
    token = answer.json()["token"]
    assert answer["Cache-Control"] == "no-store" and token not in str(vars(row))
    assert take(begun).status_code == 404 and not DeviceLogin.objects.exists()
    kept = ApiToken.objects.get(digest=tokens.digest(token))
    assert (kept.user, kept.scope, kept.project.name, kept.elevated) == (cast.bob, "submit", "default", False)
    assert kept.expires_at - kept.created_at == timedelta(days=30)
    assert AuditEntry.objects.filter(what="token.make", actor="bob").count() == 1


def test_what_the_token_may_do_is_told_to_its_owner(begin, take, browser):
    begun = begin().json()
    confirm(browser("bob"), begun, scope="read")
    script = Client(headers={"authorization": f"Bearer {take(begun).json()['token']}"})
    answer = script.get("/api/v1/account")
    account = answer.json()
    assert (account["user"], account["admin"], account["version"]) == ("bob", False, VERSION)
    assert account["projects"] == [{"name": "default", "role": "submitter"}]
    assert account["token"]["scope"] == "read" and answer["Trainyard-Version"] == VERSION
    assert script.delete("/api/v1/account/token").status_code == 200
    assert script.get("/api/v1/account").status_code == 401


def test_a_page_has_no_token_to_revoke(browser):
    assert browser("bob").delete("/api/v1/account/token").status_code == 404


def test_who_refuses_gives_no_token(begin, take, browser):
    begun = begin().json()
    assert confirm(browser("bob"), begun, deny="1").status_code == 302
    assert take(begun).json() == {"state": "DENIED"} and not ApiToken.objects.exists()
    assert confirm(browser("bob"), begun).status_code == 400
    assert take(begun).json() == {"state": "DENIED"}


def test_a_look_at_the_page_confirms_nothing(begin, take, browser):
    begun = begin().json()
    browser("bob").get(begun["page"])
    assert take(begun).json() == {"state": "PENDING"}


def test_an_old_login_is_asked_for_the_password_before(begin, take, browser):
    begun = begin().json()
    page = browser("bob", given_at=timezone.now() - timedelta(hours=2))
    asked = confirm(page, begun)
    assert asked.status_code == 200 and b"confirm_password" in asked.content
    assert take(begun).json() == {"state": "PENDING"}


def test_a_stranger_is_sent_to_the_login(begin, take, browser):
    begun = begin().json()
    assert browser().get(begun["page"]).status_code == 302
    assert confirm(browser(), begun)["Location"].startswith("/login")
    assert take(begun).json() == {"state": "PENDING"}


@pytest.mark.parametrize("change", ["password", "disabled"])
def test_a_change_of_the_account_in_between_ends_the_login(begin, take, browser, cast, change):
    begun = begin().json()
    confirm(browser("bob"), begun)
    if change == "password":
        cast.bob.set_password("another good password")
    else:
        cast.bob.is_active = False
    cast.bob.save()
    assert take(begun).json() == {"state": "DENIED"} and not ApiToken.objects.exists()


def test_a_code_is_good_for_ten_minutes_and_then_forgotten(begin, take, browser):
    begun = begin().json()
    DeviceLogin.objects.update(expires_at=timezone.now())
    assert confirm(browser("bob"), begun).status_code == 400
    assert take(begun).status_code == 404
    housekeeping.tidy(timezone.now())
    assert not DeviceLogin.objects.exists()


def test_one_network_cannot_begin_many(begin, monkeypatch):
    monkeypatch.setattr(device_logins, "MOST_OF_NETWORK", 3)
    answers = [begin(f"2001:db8::{number}").status_code for number in range(4)]
    assert answers == [201, 201, 201, 429]
    assert begin("192.0.2.10").status_code == 201
    monkeypatch.setattr(device_logins, "MOST", 4)
    assert begin("192.0.2.11").status_code == 429


def test_nobody_guesses_a_secret_and_no_code_is_one(begin, take, script):
    begun = begin().json()
    for guess in ("", begun["userCode"], "x" * 43):
        assert script().post("/api/v1/deviceLogins:token", {"deviceCode": guess}, **JSON).status_code == 404
    assert script().post("/api/v1/deviceLogins:token", {}, **JSON).status_code == 400
    assert begin(client="x" * 101).status_code == 400
