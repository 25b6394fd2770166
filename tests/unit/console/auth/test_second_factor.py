"""A second factor stands between the password and the session. A code is good once, and so is a recovery code."""

from __future__ import annotations

import base64
import re
import threading
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.db import connection
from django.test import Client, RequestFactory
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import accounts, sessions
from console.auth.login import confirmation, login_steps, second_factor, throttle
from console.consumers import credentials
from console.models import RecoveryCode, SecondFactor, Session
from jobs.models import AuditEntry
from tests.unit.console.api.conftest import script
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project", "script"]

KEY = b"12345678901234567890"
JSON = {"content_type": "application/json"}


def code_of(key=KEY, steps=0, now=None):
    """The code that an app shows now, or so many steps of 30 s later."""
    moment = int((now or timezone.now()).timestamp()) + 30 * steps
    return TOTP(key, 6, SHA1(), 30).generate(moment).decode()


@pytest.fixture
def bob(cast):
    """Bob, who has a second factor. His codes of this moment are not used yet."""
    now = timezone.now()
    cast.codes = second_factor.set_up(cast.bob, KEY, code_of(), "bob", now)
    SecondFactor.objects.update(used_step=0)
    return cast.bob


@pytest.fixture
def require(monkeypatch):
    def turn_on(whom):
        changed = replace(settings.TRAINYARD, require_second_factor=whom)
        monkeypatch.setattr(settings, "TRAINYARD", changed)

    return turn_on


def password_given(name="bob", onward=""):
    client = Client()
    answer = client.post("/login", {"username": name, "password": PASSWORD, "next": onward})
    assert answer.status_code == 302
    return client, answer["Location"]


def is_in(client):
    return client.get("/account").status_code == 200


def check(user, code, now=None):
    second_factor.check(RequestFactory().get("/"), user, code, now or timezone.now())


def test_a_second_factor_stands_between_password_and_session(bob):
    client, page = password_given(onward="/hosts/")
    assert page == "/login/code" and not is_in(client)
    assert not Session.objects.filter(user=bob).exists()
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    assert credentials.user({"headers": [(b"cookie", cookie.encode())]}) is None
    assert not AuditEntry.objects.filter(what="login").exists()
    before = client.session.session_key
    assert "The code is wrong" in client.post("/login/code", {"code": "000000"}).content.decode()
    assert not is_in(client)
    assert client.post("/login/code", {"code": code_of()})["Location"] == "/hosts/"
    assert is_in(client) and client.session.session_key != before
    assert login_steps.WAITS not in client.session
    assert AuditEntry.objects.get(what="login").actor == "bob"
    assert confirmation.is_fresh(client.session, timezone.now())


def test_a_person_without_one_is_not_asked(bob):
    client, page = password_given("bella")
    assert page == "/" and is_in(client)


def test_the_page_of_the_code_is_for_those_who_gave_the_password(bob):
    stranger = Client()
    assert stranger.get("/login/code")["Location"] == "/login"
    assert stranger.post("/login/code", {"code": code_of()})["Location"] == "/login"
    assert not is_in(stranger)


def test_a_wrong_password_says_nothing_of_a_second_factor(bob):
    for name in ("bob", "bella", "not-there"):
        page = Client().post("/login", {"username": name, "password": "x"})
        assert page.status_code == 200 and "The name or the password is wrong." in page.content.decode()
        assert "code" not in re.sub(r"<[^>]*>", "", page.content.decode()).lower()


def test_the_second_step_waits_ten_minutes_and_for_the_same_password(bob):
    client, _ = password_given()
    session, now = client.session, timezone.now()
    assert login_steps.waiting(session, now + timedelta(minutes=9)).user == bob
    assert login_steps.waiting(session, now + timedelta(minutes=10, seconds=1)) is None
    assert login_steps.waiting(session, now - timedelta(minutes=1)) is None
    accounts.set_password(bob, "another fine password", "bob", now)
    assert client.post("/login/code", {"code": code_of()})["Location"] == "/login"
    client, _ = password_given("bella")
    other = Client()
    other.post("/login", {"username": "bob", "password": "another fine password"})
    accounts.disable(bob, "root", now)
    assert other.post("/login/code", {"code": code_of()})["Location"] == "/login" and not is_in(other)


@pytest.mark.parametrize(("steps", "good"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_a_phone_may_be_wrong_by_one_step(bob, steps, good):
    now = timezone.now()
    if good:
        check(bob, code_of(steps=steps, now=now), now)
    else:
        with pytest.raises(Refused, match="wrong, too old"):
            check(bob, code_of(steps=steps, now=now), now)


def test_a_code_is_good_once_and_no_older_one_after_it(bob):
    now = timezone.now()
    code, older = code_of(now=now), code_of(steps=-1, now=now)
    check(bob, code, now)
    for again in (code, older, code):
        with pytest.raises(Refused, match="used already"):
            check(bob, again, now)
    check(bob, code_of(steps=1, now=now), now)


def test_the_code_that_set_it_up_is_used(cast):
    now = timezone.now()
    second_factor.set_up(cast.bob, KEY, code_of(now=now), "bob", now)
    with pytest.raises(Refused):
        check(cast.bob, code_of(now=now), now)


@pytest.mark.django_db(transaction=True)
def test_of_two_logins_with_one_code_at_the_same_time_one_gets_in(bob):
    clients = [password_given()[0] for _ in range(2)]
    code, start = code_of(), threading.Barrier(2)

    def log_in(client):
        start.wait(30)
        client.post("/login/code", {"code": code})
        connection.close()

    threads = [threading.Thread(target=log_in, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(is_in, clients)) == [False, True]


def test_recovery_codes(bob, cast):
    assert len(set(cast.codes)) == 10 and second_factor.codes_left(bob) == 10
    client, _ = password_given()
    assert client.post("/login/code", {"code": cast.codes[3].upper()}).status_code == 302 and is_in(client)
    assert second_factor.codes_left(bob) == 9
    again, _ = password_given()
    again.post("/login/code", {"code": cast.codes[3]})
    assert not is_in(again)
    assert AuditEntry.objects.get(what="second_factor.recovery").after == {"left": 9}
    renewed = second_factor.renew_codes(bob, "bob", timezone.now())
    with pytest.raises(Refused):
        check(bob, cast.codes[0])
    check(bob, renewed[0])


def test_neither_keys_nor_codes_are_stored_in_the_clear(bob, cast):
    sealed = bytes(SecondFactor.objects.get().sealed)
    assert KEY not in sealed and base64.b32encode(KEY) not in sealed
    stored = " ".join(RecoveryCode.objects.values_list("digest", flat=True))
    assert not any(code.replace("-", "") in stored for code in cast.codes)


def test_wrong_codes_are_limited_for_the_account_and_not_undone_by_the_password(bob):
    """A password that is right again does not begin the count again, and another address is no way around it."""
    for number in range(throttle.TRIES_OF_PAIR):
        client = Client(REMOTE_ADDR=f"192.0.2.{number}")
        client.post("/login", {"username": "bob", "password": PASSWORD})
        assert "code is wrong" in client.post("/login/code", {"code": "000000"}).content.decode()
    late, _ = password_given()
    assert "Too many wrong codes" in late.post("/login/code", {"code": code_of()}).content.decode()
    assert not is_in(late)
    assert AuditEntry.objects.filter(what="login.wrong_code", subject="bob").count() >= 1
    # Others, and the passwords of the same address, are not slowed down.
    assert is_in(password_given("bella")[0])


def test_the_pages_set_it_up_show_the_codes_once_and_turn_it_off(cast, browser):
    bob = browser("bob")
    assert "Set up a second factor" in bob.get("/account/security").content.decode()
    assert bob.post("/account/second-factor/begin")["Location"] == "/account/second-factor"
    page = bob.get("/account/second-factor").content.decode()
    assert "<svg" in page and "style=" not in page
    text = re.search(r'data-copy="([A-Z2-7 ]+)"', page)[1].replace(" ", "")
    key = base64.b32decode(text)
    assert not SecondFactor.objects.exists()
    wrong = bob.post("/account/second-factor", {"code": "000000"}).content.decode()
    assert "Compare the clock of your phone" in wrong and not SecondFactor.objects.exists()
    done = bob.post("/account/second-factor", {"code": code_of(key)})
    codes = re.findall(r"<li>([a-z2-9-]{19})</li>", done.content.decode())
    assert len(codes) == 10 and "no-store" in done["Cache-Control"]
    assert codes[0] not in bob.get("/account/second-factor").content.decode()
    assert "10 recovery codes are left" in bob.get("/account/security").content.decode()
    more = re.findall(r"<li>([a-z2-9-]{19})</li>", bob.post("/account/second-factor/codes").content.decode())
    assert len(more) == 10 and not set(codes) & set(more)
    bob.post("/account/second-factor/remove")
    assert not SecondFactor.objects.exists() and not RecoveryCode.objects.exists()
    kinds = [f"second_factor.{what}" for what in ("set", "codes", "remove")]
    assert list(AuditEntry.objects.order_by("pk").values_list("what", flat=True)) == kinds


def test_the_key_that_apps_read_names_account_and_issuer(cast):
    parts = urlsplit(second_factor.address_of(KEY, cast.bob))
    assert (parts.scheme, parts.netloc, parts.path) == ("otpauth", "totp", "/Trainyard:bob")
    assert parse_qs(parts.query) == {"secret": [base64.b32encode(KEY).decode()], "issuer": ["Trainyard"]}


@pytest.mark.parametrize("path", ["begin", "codes", "remove"])
def test_each_change_asks_again_and_a_code_is_an_answer(bob, browser, path):
    late = browser("bob", given_at=timezone.now() - confirmation.GOOD_FOR - timedelta(seconds=5))
    asked = late.post(f"/account/second-factor/{path}").content.decode()
    assert "Your password, or a code from your app" in asked
    wrong = late.post(f"/account/second-factor/{path}", {"confirm_password": "000000"}).content.decode()
    assert "The code is wrong" in wrong and SecondFactor.objects.exists()
    late.post(f"/account/second-factor/{path}", {"confirm_password": code_of()})
    assert confirmation.is_fresh(late.session, timezone.now())


def test_a_person_without_one_is_asked_for_the_password_only(cast, browser):
    late = browser("bob", given_at=timezone.now() - timedelta(hours=2))
    page = late.post("/account/second-factor/begin").content.decode()
    assert "or a code" not in page and "second_factor_key" not in late.session


def test_an_admin_resets_it_by_page_and_by_rest(bob, cast, browser, script):
    assert browser("alice").post(f"/admin/people/{bob.pk}/second-factor").status_code == 404
    assert script("root").post("/api/v1/people/bob:resetSecondFactor", {}, **JSON).status_code == 403
    shown = script("root").get("/api/v1/people/bob").json()
    assert shown["secondFactor"] is True
    browser("root").post(f"/admin/people/{bob.pk}/second-factor")
    assert not SecondFactor.objects.exists() and password_given()[1] == "/"
    entry = AuditEntry.objects.get(what="second_factor.remove")
    assert (entry.actor, entry.subject) == ("root", "bob")
    second_factor.set_up(bob, KEY, code_of(), "bob", timezone.now())
    answer = script("root", elevated=True).post("/api/v1/people/bob:resetSecondFactor", {}, **JSON)
    assert answer.json()["secondFactor"] is False


@pytest.mark.parametrize(("whom", "asked"), [("", []), ("ADMINS", ["root"]), ("ALL", ["root", "bella"])])
def test_a_deployment_may_require_it(cast, browser, require, whom, asked):
    require(whom)
    for name in ("root", "bella"):
        client = browser(name)
        page = client.get("/jobs/")
        assert (page.status_code == 302) is (name in asked), name
        api = client.get("/api/v1/jobs")
        assert (api.status_code == 403) is (name in asked)
        assert (sessions.user_of(client.session.session_key) is None) is (name in asked)
        if name in asked:
            assert page["Location"] == "/account/second-factor"
            assert "wants a second factor" in client.get("/account/second-factor").content.decode()
            assert client.get("/account/security").status_code == 302
            assert "Set up a second factor" in api.json()["error"]["message"]


def test_who_has_set_it_up_gets_all_pages(cast, browser, require):
    require("ALL")
    client = browser("bella")
    client.post("/account/second-factor/begin")
    page = client.get("/account/second-factor").content.decode()
    key = base64.b32decode(re.search(r'data-copy="([A-Z2-7 ]+)"', page)[1].replace(" ", ""))
    client.post("/account/second-factor", {"code": code_of(key)})
    assert client.get("/jobs/").status_code == 200


def test_scripts_are_not_asked_and_a_false_scheme_is_no_way_around(cast, browser, script, require):
    require("ALL")
    assert script("bella").get("/api/v1/jobs").status_code == 200
    client = browser("bella")
    assert client.get("/api/v1/jobs", headers={"authorization": "Basic eDp5"}).status_code == 403
    assert client.get("/api/v1/jobs", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_a_one_time_link_does_not_go_around_it(bob):
    """The link stands for the password only: the person has another password now, and still needs the phone."""
    token = accounts.invite(bob, "root", timezone.now())
    client = Client()
    form = {"password": "another fine password", "again": "another fine password"}
    assert client.post(f"/invited/{token}", form)["Location"] == "/login/code" and not is_in(client)
    assert client.post("/login/code", {"code": code_of()}).status_code == 302 and is_in(client)
