"""Logging in by a login server (OIDC): a real one, which these tests start."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.test import Client
from django.utils import timezone

from agents.infra import shared_answers
from agents.infra.refusals import Refused
from console import environment
from console.auth import accounts
from console.auth.login import confirmation, oidc, oidc_server, second_factor
from console.models import OidcIdentity, Session
from console.runtime import checks
from console.views.people import oidc as views
from jobs.models import AuditEntry, Membership, Project
from tests.harness import oidc_server as harness
from tests.unit.console.auth.test_second_factor import KEY, code_of
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project"]

BACK = "http://testserver/login/oidc/callback"
PEOPLE = {
    "olga": {"groups": ["nlp", "ml-admins"]},
    "otto": {"groups": ["nlp"]},
    "taken": {"preferred_username": "bob"},
}


@pytest.fixture(scope="module")
def server():
    with harness.oidc_server(BACK, PEOPLE) as server:
        yield server


@pytest.fixture
def use(db, server, monkeypatch, tmp_path):
    """use(...) turns the login server on, with these settings."""
    secret = tmp_path / "secret"
    secret.write_text(harness.SECRET)
    secret.chmod(0o600)

    def turn_on(**changes):
        given = {"oidc_client_id": harness.CLIENT, "oidc_client_secret_file": str(secret), **changes}
        given.setdefault("oidc_url", server.issuer)
        monkeypatch.setattr(settings, "TRAINYARD", replace(settings.TRAINYARD, **given))
        shared_answers.forget_all()

    turn_on()
    return turn_on


def address_of(page):
    assert page.status_code == 200, page.content.decode()
    found = unescape(re.search(r'href="(http://127[^"]+)"', page.content.decode())[1])
    assert page["Refresh"] == f"0; url={found}"
    return found


def come_back(client, name, path="/login/oidc", at_server=None, **form):
    """Log in there as this person. Returns our answer to the browser that comes back."""
    back = harness.sign_in(address_of(client.post(path, form)), name, at_server)
    parts = urlsplit(back)
    return client.get(f"{parts.path}?{parts.query}")


def is_in(client):
    return client.get("/account").status_code == 200


def text_of(page):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page.content.decode())))


def test_a_person_of_the_server_gets_in(use, cast):
    use(oidc_create=True, oidc_name="Keycloak")
    client = Client()
    assert "Log in with Keycloak" in client.get("/login").content.decode()
    answer = come_back(client, "otto", next="/hosts/")
    assert (answer.status_code, answer["Location"]) == (302, "/hosts/") and is_in(client)
    identity = OidcIdentity.objects.get()
    assert (identity.user.username, identity.sub) == ("otto", "otto")
    assert not identity.user.has_usable_password() and not identity.user.is_superuser
    assert Session.objects.get(user=identity.user).way == "oidc"
    again = Client()
    come_back(again, "otto")
    assert is_in(again) and OidcIdentity.objects.count() == 1


def test_an_unknown_one_does_not(use, cast):
    client = Client()
    answer = come_back(client, "otto")
    assert answer.status_code == 403 and "You have no account here" in text_of(answer)
    assert not is_in(client) and not OidcIdentity.objects.exists()


def test_nobody_is_found_by_a_name(use, cast):
    """The server's name for a person is no proof: another person may have had it before, here or there."""
    use(oidc_create=True)
    client = Client()
    answer = come_back(client, "taken")
    assert answer.status_code == 403 and "No account could be made with the name “bob”" in text_of(answer)
    assert not is_in(client) and not OidcIdentity.objects.exists()


def test_a_person_connects_the_account_and_logs_in_by_it(use, cast, browser):
    bob = browser("bob")
    answer = come_back(bob, "otto", "/account/oidc/connect")
    assert answer["Location"] == "/account/security"
    assert "Connected since" in text_of(bob.get("/account/security"))
    client = Client()
    come_back(client, "otto")
    assert is_in(client) and OidcIdentity.objects.get().user == cast.bob
    second = come_back(browser("bella"), "otto", "/account/oidc/connect")
    assert second.status_code == 403 and "belongs to another account" in text_of(second)
    bob.post("/account/oidc/disconnect")
    assert not OidcIdentity.objects.exists()
    kinds = AuditEntry.objects.filter(what__startswith="oidc").order_by("pk").values_list("what", flat=True)
    assert list(kinds) == ["oidc.connect", "oidc.disconnect"]


def test_who_has_no_password_does_not_disconnect(use, cast):
    use(oidc_create=True)
    come_back(Client(), "otto")
    with pytest.raises(Refused, match="You have no password"):
        oidc.disconnect(OidcIdentity.objects.get().user, "otto", timezone.now())


def test_groups_become_roles(use, cast, project):
    other = Project.objects.create(name="nlp", created_at=timezone.now())
    use(oidc_create=True, oidc_groups=(("ml-admins", "", "admin"), ("nlp", "nlp", "submitter")))
    come_back(Client(), "olga")
    olga = OidcIdentity.objects.get().user
    assert olga.is_superuser
    assert list(Membership.objects.filter(user=olga).values_list("project__name", "role")) == [
        ("nlp", "submitter")
    ]
    # A role that the deployment gave by hand, in a project that the setting does not name, stays.
    Membership.objects.create(user=olga, project=project, role="viewer")
    use(oidc_groups=(("others", "", "admin"), ("others", "nlp", "viewer"), ("nlp", "nlp", "admin")))
    come_back(Client(), "olga")
    olga.refresh_from_db()
    assert not olga.is_superuser
    assert dict(Membership.objects.filter(user=olga).values_list("project__name", "role")) == {
        "nlp": "admin",
        "default": "viewer",
    }
    use(oidc_groups=(("others", "nlp", "viewer"),))
    come_back(Client(), "olga")
    assert not Membership.objects.filter(user=olga, project=other).exists()
    changes = AuditEntry.objects.filter(
        actor="login server", what__in=["member.set", "member.remove", "user.admin"]
    )
    assert list(changes.order_by("pk").values_list("what", "after")) == [
        ("member.set", "submitter"),
        ("user.admin", True),
        ("member.set", "admin"),
        ("user.admin", False),
        ("member.remove", None),
    ]


def test_the_last_admin_stays_one_whatever_the_groups_say(use, cast):
    cast.root.delete()
    use(oidc_create=True, oidc_groups=(("ml-admins", "", "admin"),))
    come_back(Client(), "olga")
    use(oidc_groups=(("others", "", "admin"),))
    come_back(Client(), "olga")
    assert OidcIdentity.objects.get().user.is_superuser


def test_a_disabled_person_stays_out(use, cast):
    use(oidc_create=True)
    come_back(Client(), "otto")
    accounts.disable(OidcIdentity.objects.get().user, "root", timezone.now())
    client = Client()
    answer = come_back(client, "otto")
    assert answer.status_code == 403 and "disabled" in text_of(answer) and not is_in(client)


def test_a_second_factor_is_asked_for_here_too(use, cast, browser):
    come_back(browser("bob"), "otto", "/account/oidc/connect")
    second_factor.set_up(cast.bob, KEY, code_of(), "bob", timezone.now())
    client = Client()
    assert come_back(client, "otto")["Location"] == "/login/code" and not is_in(client)


def test_the_server_is_down(use, cast):
    use(oidc_url=f"http://127.0.0.1:{harness.free_port()}")
    client = Client()
    answer = client.post("/login/oidc")
    assert answer.status_code == 502
    assert "does not answer as it should. Log in with your password" in text_of(answer)
    assert client.post("/login", {"username": "bob", "password": PASSWORD}).status_code == 302 and is_in(
        client
    )


def test_a_failure_is_kept_for_seconds_and_keys_for_minutes(use, cast, monkeypatch):
    """The answers of the server that were asked for, by the end of their address."""
    use(oidc_create=True)
    asked, fetch = [], oidc_server._fetch
    away = [True]

    def note(request, until):
        asked.append(urlsplit(request.full_url).path.rpartition("/")[2])
        if away[0]:
            raise oidc_server.OidcFailed("It is away.")
        return fetch(request, until)

    monkeypatch.setattr(oidc_server, "_fetch", note)
    assert [Client().post("/login/oidc").status_code for _ in range(3)] == [502] * 3
    assert asked == ["openid-configuration"]
    away[0] = False
    passed, monotonic = 11.0, time.monotonic
    monkeypatch.setattr(shared_answers.time, "monotonic", lambda: monotonic() + passed)
    for name in ("otto", "olga"):
        client = Client()
        path, query = back_of(client, name)
        assert client.get(path, query).status_code == 302
    assert asked.count("openid-configuration") == 2 and asked.count("jwks") == 1 and asked.count("token") == 2


@pytest.mark.parametrize("late", ["jwks", "openid-configuration"])
def test_a_login_that_came_late_to_a_question_says_nothing_of_the_server(use, cast, monkeypatch, late):
    """What it had left was not enough: by a slow answer before, or behind another login that asked the same."""
    use(oidc_create=True)
    first, second = Client(), Client()
    ways = [back_of(first, "otto"), back_of(second, "olga")]
    shared_answers.forget_all()
    passed, is_slow, monotonic, fetch = [0.0], [True], time.monotonic, oidc_server._fetch
    deadline = oidc_server._deadline
    monkeypatch.setattr(shared_answers.time, "monotonic", lambda: monotonic() + passed[0])

    def answered(request, until):
        if until - time.monotonic() < 1:
            raise oidc_server.OidcFailed("It took too long.")
        answer = fetch(request, until)
        if is_slow[0] and request.full_url.endswith("token") and late == "jwks":
            passed[0] += 9.9
        return answer

    def begun():
        return deadline() - (9.9 if is_slow[0] and late == "openid-configuration" else 0)

    monkeypatch.setattr(oidc_server, "_fetch", answered)
    monkeypatch.setattr(oidc_server, "_deadline", begun)
    assert first.get(*ways[0]).status_code == 502
    is_slow[0] = False
    assert second.get(*ways[1]).status_code == 302 and is_in(second)


def test_a_key_that_is_new_is_asked_for_at_once(monkeypatch):
    def public(name):
        private = rsa.generate_private_key(65537, 2048)
        return jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True) | {"kid": name}

    published, asked = [public("old")], []
    monkeypatch.setattr(oidc_server, "_fetch", lambda *given: asked.append(given) or {"keys": published})

    def found(name):
        return [key.key_id for key in oidc_server._fitting("http://127.0.0.1:1/keys", name, 0.0)]

    assert [found("old"), found("old"), found("new")] == [["old"], ["old"], []] and len(asked) == 2
    published.append(public("new"))
    assert [found("new"), found("new")] == [["new"], ["new"]] and len(asked) == 3
    assert [found(None), found(None)] == [["old", "new"]] * 2 and len(asked) == 5


def test_without_a_server_there_is_no_such_page(db):
    assert Client().post("/login/oidc").status_code == 404
    assert "Log in with" not in Client().get("/login").content.decode()
    assert Client().get("/login/oidc/callback?code=x&state=y").status_code == 400


def back_of(client, name="otto"):
    parts = urlsplit(harness.sign_in(address_of(client.post("/login/oidc")), name))
    return parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()}


def test_an_answer_is_good_once_and_in_its_own_browser(use, cast):
    use(oidc_create=True)
    client, stranger = Client(), Client()
    path, query = back_of(client)
    assert stranger.get(f"{path}?{urlencode(query)}").status_code == 400
    wrong = Client()
    back_of(wrong)
    assert wrong.get(f"{path}?{urlencode(query)}").status_code == 400
    assert client.get(f"{path}?{urlencode(query)}").status_code == 302
    assert client.get(f"{path}?{urlencode(query)}").status_code == 400


def test_an_answer_comes_within_ten_minutes_and_from_the_server_that_was_asked(use, cast, monkeypatch):
    use(oidc_create=True)
    client = Client()
    path, query = back_of(client)
    other = client.get(f"{path}?{urlencode({**query, 'iss': 'https://evil.example'})}")
    assert other.status_code == 502 and "another login server" in text_of(other) and not is_in(client)
    path, query = back_of(client)
    monkeypatch.setattr(views, "GOOD_FOR_S", 0)
    assert client.get(f"{path}?{urlencode(query)}").status_code == 400 and not is_in(client)


def test_a_refusal_of_the_server_is_told(use, cast):
    client = Client()
    question = parse_qs(urlsplit(address_of(client.post("/login/oidc"))).query)
    query = {"error": "access_denied<script>", "state": question["state"][0]}
    answer = client.get(f"/login/oidc/callback?{urlencode(query)}")
    assert answer.status_code == 403 and "access_denied" in text_of(answer)
    assert b"<script>access" not in answer.content and b"denied<script>" not in answer.content


def test_the_code_is_bound_to_this_browser_by_pkce(use, cast):
    """A code that was stolen on its way is of no use: the verifier never leaves our side."""
    use(oidc_create=True)
    client = Client()
    path, query = back_of(client)
    session = client.session
    session[views.ASKED] = {**session[views.ASKED], "verifier": "another" * 7}
    session.save()
    answer = client.get(f"{path}?{urlencode(query)}")
    assert answer.status_code == 502 and not is_in(client)


def test_the_address_asks_for_what_the_flow_needs(use, server):
    asked = parse_qs(urlsplit(address_of(Client().post("/login/oidc"))).query)
    assert asked["response_type"] == ["code"] and asked["code_challenge_method"] == ["S256"]
    assert asked["scope"] == ["openid profile email groups"] and "prompt" not in asked
    assert {"state", "nonce", "code_challenge"} <= asked.keys()


def test_an_act_is_confirmed_at_the_server(use, cast):
    """Who has no password types it there again; a login that is old there does not count."""
    use(oidc_create=True)
    client, at_server = Client(), requests.Session()
    come_back(client, "otto", at_server=at_server)
    session = client.session
    session[confirmation.CONFIRMED_AT] = 0.0
    session.save()
    page = client.post("/account/tokens", {"name": "ci"})
    assert "Confirm with single sign-on" in text_of(page)
    asked = parse_qs(urlsplit(address_of(client.post("/account/oidc/confirm"))).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    come_back(client, "otto", "/account/oidc/confirm", at_server)
    assert confirmation.is_fresh(client.session, timezone.now())
    assert "tyd_" in client.post("/account/tokens", {"name": "ci"}).content.decode()


def test_to_confirm_as_somebody_else_is_refused(use, cast, browser):
    come_back(browser("bob"), "otto", "/account/oidc/connect")
    bob = browser("bob", given_at=timezone.now().replace(year=2020))
    answer = come_back(bob, "olga", "/account/oidc/confirm")
    assert answer.status_code == 403 and "as somebody else" in text_of(answer)
    assert not confirmation.is_fresh(bob.session, timezone.now())


CHANGES = {
    "another nonce": {"nonce": "x"},
    "another audience": {"aud": "somebody"},
    "another issuer": {"iss": "https://evil.example"},
    "too old": {"exp": 1_000_000_000},
    "for another program": {"azp": "somebody"},
}


@pytest.fixture
def signed(use, monkeypatch):
    """A token with these claims, as `_checked` gets it, signed by a key that the server publishes."""
    private = rsa.generate_private_key(65537, 2048)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True) | {"kid": "k"}
    monkeypatch.setattr(oidc_server, "_fetch", lambda request, until: {"keys": [public]})
    now = int(timezone.now().timestamp())
    found = {"issuer": "http://127.0.0.1:1", "jwks_uri": "http://127.0.0.1:1/jwks"}

    def check(algorithm="RS256", key=private, **changes):
        claims = {
            "iss": found["issuer"],
            "aud": harness.CLIENT,
            "sub": "s",
            "nonce": "n",
            "iat": now,
            "exp": now + 60,
        }
        token = jwt.encode(claims | changes, key, algorithm, headers={"kid": "k"})
        return oidc_server._checked(found, token, "n", time.monotonic() + 60)

    return check


def test_a_good_token_is_believed(signed):
    assert signed()["sub"] == "s"


@pytest.mark.parametrize("what", CHANGES)
def test_a_token_that_is_not_for_this_login_is_refused(signed, what):
    with pytest.raises(oidc_server.OidcFailed):
        signed(**CHANGES[what])


def test_a_token_with_another_signature_is_refused(signed):
    other = rsa.generate_private_key(65537, 2048)
    with pytest.raises(oidc_server.OidcFailed):
        signed(key=other)
    for algorithm, key in (("none", None), ("HS256", "x" * 32)):
        with pytest.raises(oidc_server.OidcFailed):
            signed(algorithm, key)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"oidc_url": "https://x.example"}, "needs both"),
        ({"oidc_client_id": "x"}, "needs both"),
        ({"oidc_create": True}, "no effect"),
        ({"oidc_url": "https://x.example", "oidc_client_id": "x", "oidc_create": True}, ""),
        ({}, ""),
    ],
)
def test_a_half_setting_is_an_error_at_start(given, words):
    found = checks.incomplete_login_server(replace(settings.TRAINYARD, **given))
    assert words in found and bool(found) is bool(words)


@pytest.mark.parametrize(
    "value", ["http://login.example.org", "login.example.org", "ftp://x.example", "https://"]
)
def test_a_server_without_tls_is_refused(value):
    with pytest.raises(environment.BadSetting, match="begins with https://"):
        environment.read({"TRAINYARD_OIDC_URL": value})


@pytest.mark.parametrize("value", ["nlp", "nlp=king", "nlp=viewer", "=admin", "a=admin,,"])
def test_a_wrong_map_of_groups_is_refused(value):
    with pytest.raises(environment.BadSetting, match="GROUP=PROJECT:ROLE"):
        environment.read({"TRAINYARD_OIDC_GROUPS": value})


def test_a_secret_that_others_can_read_is_not_used(use, cast, tmp_path):
    open_file = tmp_path / "open"
    open_file.write_text("x")
    open_file.chmod(0o644)
    use(oidc_client_secret_file=str(open_file))
    answer = come_back(Client(), "otto")
    assert answer.status_code == 502 and "client secret cannot be read" in text_of(answer)
