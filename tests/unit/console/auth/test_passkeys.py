"""Passkeys: a device signs a challenge of ours, for our name and our page only; its counter tells of copies.

The device of these tests is a key in memory. tests/browser/test_login_pages.py has Chromium's own.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from django.conf import settings
from django.test import Client
from django.utils import timezone
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData

from console.auth import accounts
from console.auth.login import confirmation, passkeys, throttle
from console.auth.session_store import stored_key
from console.models import Passkey, Session
from jobs.models import AuditEntry
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project"]

ORIGIN = "http://localhost"
JSON = {"content_type": "application/json"}
PRESENT_AND_VERIFIED, PRESENT, HAS_KEY = 0x05, 0x01, 0x40


class Device:
    """A phone with one key. `changes` say what it does wrong."""

    def __init__(self, origin=ORIGIN, name="localhost", flags=PRESENT_AND_VERIFIED, counter=1):
        self.origin, self.name, self.flags, self.counter = origin, name, flags, counter
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = secrets.token_bytes(32)

    def made(self, options):
        public = AttestedCredentialData.create(
            b"\0" * 16, self.id, ES256.from_cryptography_key(self.key.public_key())
        )
        data = AuthenticatorData.create(self._hash(), self.flags | HAS_KEY, self.counter, bytes(public))
        told = self._client_data("webauthn.create", options)
        made = AttestationObject.create("none", data, {})
        return self._answer(clientDataJSON=told, attestationObject=bytes(made))

    def signed(self, options):
        data = AuthenticatorData.create(self._hash(), self.flags, self.counter)
        told = self._client_data("webauthn.get", options)
        signature = self.key.sign(bytes(data) + hashlib.sha256(told).digest(), ec.ECDSA(SHA256()))
        return self._answer(clientDataJSON=told, authenticatorData=bytes(data), signature=signature)

    def _hash(self):
        return hashlib.sha256(self.name.encode()).digest()

    def _client_data(self, kind, options):
        return json.dumps(
            {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        ).encode()

    def _answer(self, **response):
        encoded = {name: websafe_encode(value) for name, value in response.items()}
        own = websafe_encode(self.id)
        return {"id": own, "rawId": own, "type": "public-key", "response": encoded}


@pytest.fixture
def bob(browser):
    return browser("bob", HTTP_HOST="localhost")


def post(client, path, document):
    return client.post(path, json.dumps(document), **JSON)


def add(client, device, name="phone"):
    options = post(client, "/account/passkeys/begin", {}).json()["publicKey"]
    return post(client, "/account/passkeys", {"name": name, "credential": device.made(options)})


def asked(client):
    return post(client, "/login/passkey/begin", {}).json()["publicKey"]


def log_in(device, **more):
    client = Client(HTTP_HOST="localhost")
    options = asked(client)
    return client, post(client, "/login/passkey", {"credential": device.signed(options), **more})


def is_in(client):
    return client.get("/account").status_code == 200


def test_a_passkey_is_added_logs_in_and_is_removed(cast, bob):
    device = Device()
    assert add(bob, device).json() == {"next": "/account/security"}
    row = Passkey.objects.get()
    assert (row.user, row.name, row.used_at) == (cast.bob, "phone", None)
    page = bob.get("/account/security").content.decode()
    assert "Remove phone" in page
    device.counter += 1
    client, answer = log_in(device, next="/hosts/")
    assert answer.json() == {"next": "/hosts/"} and is_in(client)
    assert Session.objects.get(pk=stored_key(client.session.session_key)).way == "passkey"
    assert confirmation.is_fresh(client.session, timezone.now())
    assert Passkey.objects.get().used_at
    bob.post(f"/account/passkeys/{row.pk}/remove")
    device.counter += 1
    client, answer = log_in(device)
    assert answer.status_code == 400 and not is_in(client)
    kinds = (
        AuditEntry.objects.filter(what__startswith="passkey").order_by("pk").values_list("what", flat=True)
    )
    assert list(kinds) == ["passkey.add", "passkey.remove"]


def test_what_the_device_is_asked(bob):
    options = post(bob, "/account/passkeys/begin", {}).json()["publicKey"]
    assert options["rp"] == {"id": "localhost", "name": "Trainyard"} and options["user"]["name"] == "bob"
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert options["authenticatorSelection"]["residentKey"] == "required"
    assert len(websafe_decode(options["challenge"])) >= 16
    add(bob, Device())
    again = post(bob, "/account/passkeys/begin", {}).json()["publicKey"]
    assert len(again["excludeCredentials"]) == 1 and again["challenge"] != options["challenge"]
    # A login names nobody, so it tells nothing about who exists.
    assert not asked(Client(HTTP_HOST="localhost")).get("allowCredentials")


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:81"},
        {"name": "evil.example"},
        {"flags": PRESENT},
    ],
)
def test_a_signature_for_another_page_or_without_a_finger_is_refused(cast, bob, wrong):
    refused = add(bob, Device(**wrong))
    assert refused.status_code == 400 and "no good passkey" in refused.json()["error"]
    device = Device()
    add(bob, device)
    for name, value in wrong.items():
        setattr(device, name, value)
    device.counter += 1
    client, answer = log_in(device)
    assert answer.status_code == 400 and not is_in(client)
    assert answer.json()["error"] == "This passkey does not open an account here."


def test_another_key_with_the_same_name_is_refused(cast, bob):
    device, copy = Device(), Device(counter=9)
    add(bob, device)
    copy.id = device.id
    client, answer = log_in(copy)
    assert answer.status_code == 400 and not is_in(client)


def test_a_copied_key_is_refused_by_its_counter(cast, bob):
    device = Device(counter=5)
    add(bob, device)
    for counter, good in ((6, True), (6, False), (4, False), (0, False), (7, True)):
        device.counter = counter
        client, answer = log_in(device)
        assert (answer.status_code == 200) is good and is_in(client) is good, counter


def test_a_device_that_does_not_count_gets_in(cast, bob):
    device = Device(counter=0)
    add(bob, device)
    for _ in range(2):
        assert is_in(log_in(device)[0])


def test_an_answer_is_good_once_and_for_its_own_question(cast, bob):
    device = Device()
    add(bob, device)
    device.counter += 1
    client, other = Client(HTTP_HOST="localhost"), Client(HTTP_HOST="localhost")
    answer = device.signed(asked(client))
    asked(other)
    assert post(other, "/login/passkey", {"credential": answer}).status_code == 400
    assert post(client, "/login/passkey", {"credential": answer}).status_code == 200
    stranger = Client(HTTP_HOST="localhost")
    assert post(stranger, "/login/passkey", {"credential": answer}).status_code == 400
    assert not is_in(stranger) and not is_in(other)


@pytest.mark.parametrize(
    "rubbish", [{}, {"credential": None}, {"credential": {"id": 5}}, [], "x", {"credential": "x"}]
)
def test_rubbish_is_refused(cast, bob, rubbish):
    client = Client(HTTP_HOST="localhost")
    asked(client)
    assert post(client, "/login/passkey", rubbish).status_code == 400
    post(bob, "/account/passkeys/begin", {})
    assert post(bob, "/account/passkeys", rubbish).status_code == 400
    assert not Passkey.objects.exists()


def test_a_disabled_person_does_not_get_in(cast, bob):
    device = Device()
    add(bob, device)
    accounts.disable(cast.bob, "root", timezone.now())
    device.counter += 1
    client, answer = log_in(device)
    assert answer.status_code == 400 and not is_in(client)


def test_tries_are_limited(cast, bob):
    device = Device()
    for _ in range(throttle.TRIES_OF_PAIR):
        log_in(device)
    add(bob, device)
    device.counter += 1
    assert "Too many tries" in log_in(device)[1].json()["error"]


def test_a_passkey_is_added_only_after_the_password(cast, browser):
    late = browser("bob", given_at=timezone.now().replace(year=2020), HTTP_HOST="localhost")
    refused = post(late, "/account/passkeys/begin", {})
    assert refused.status_code == 400 and "Log in again" in refused.json()["error"]
    assert post(late, "/account/passkeys", {"name": "x"}).status_code == 400


def test_the_passkey_of_another_person_is_absent(cast, bob, browser):
    add(bob, Device())
    row = Passkey.objects.get()
    assert browser("bella").post(f"/account/passkeys/{row.pk}/remove").status_code == 404
    assert Passkey.objects.exists()


@pytest.mark.parametrize(
    ("url", "host", "why"),
    [
        ("", "localhost:8000", ""),
        ("https://train.example.org", "x", ""),
        ("", "train.example.org", "https://"),
        ("http://train.example.org", "x", "https://"),
        ("", "127.0.0.1:8000", "https://"),
        ("https://192.0.2.7", "x", "https://"),
    ],
)
def test_where_there_can_be_none_the_page_says_why(cast, browser, monkeypatch, url, host, why):
    monkeypatch.setattr(settings, "TRAINYARD", replace(settings.TRAINYARD, url=url))
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["*"])
    page = browser("bob", HTTP_HOST=host).get("/account/security").content.decode()
    assert ("Passkeys need an address with https://" in page) is bool(why)
    assert ("data-passkey" in page) is not bool(why)
    if why:
        refused = post(Client(HTTP_HOST=host), "/login/passkey/begin", {})
        assert refused.status_code == 400 and why in refused.json()["error"]


def test_who_is_asked_for_a_second_factor_comes_in_with_a_passkey(cast, bob, monkeypatch):
    """It is both at once, also where the deployment requires two."""
    device = Device()
    add(bob, device)
    monkeypatch.setattr(settings, "TRAINYARD", replace(settings.TRAINYARD, require_second_factor="ALL"))
    device.counter += 1
    client, _ = log_in(device)
    assert is_in(client)
    password = Client(HTTP_HOST="localhost")
    password.post("/login", {"username": "bob", "password": PASSWORD})
    assert not is_in(password)


def test_an_act_is_confirmed_with_a_passkey_of_the_same_person(cast, bob, browser):
    device, hers = Device(), Device()
    add(bob, device)
    bella = browser("bella", HTTP_HOST="localhost")
    add(bella, hers)
    late = browser("bob", given_at=timezone.now().replace(year=2020), HTTP_HOST="localhost")
    page = late.post("/account/tokens", {"name": "ci"}).content.decode()
    assert 'data-then="confirm"' in page and 'id="confirm"' in page
    for key, good in ((hers, False), (device, True)):
        key.counter += 1
        answer = post(late, "/account/passkeys/confirm", {"credential": key.signed(asked(late))})
        assert (answer.status_code == 200) is good
        assert confirmation.is_fresh(late.session, timezone.now()) is good
    # What the page's form sends then: what was typed, with an empty password.
    assert "tyd_" in late.post("/account/tokens", {"name": "ci", "confirm_password": ""}).content.decode()
    assert (
        "data-then"
        not in browser("vera", given_at=timezone.now().replace(year=2020))
        .post("/account/tokens", {"name": "ci"})
        .content.decode()
    )


def test_there_are_not_too_many(cast, bob, monkeypatch):
    monkeypatch.setattr(passkeys, "MOST", 1)
    add(bob, Device())
    assert "Remove one first" in post(bob, "/account/passkeys/begin", {}).json()["error"]
