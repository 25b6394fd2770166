"""The pages of stored secrets: a form that only writes, and names without values."""

from __future__ import annotations

import pytest

from jobs.models import Secret
from jobs.secrets import store

CANARY = "canary-51e0c7a9"
OF_PROJECT, OWN = "/projects/default/secrets", "/account/secrets"


@pytest.mark.parametrize("path", [OF_PROJECT, OWN])
def test_a_secret_is_set_changed_and_deleted(browser, path):
    alice = browser("alice")
    page = alice.post(path, {"name": "HF", "value": f"{CANARY}\r\n"}, follow=True)
    assert page.redirect_chain == [(path, 302)]
    shown = page.content.decode()
    assert "HF is set. Its value is not shown again." in shown and CANARY not in shown
    assert store.value_of(Secret.objects.get()) == CANARY
    assert "HF is changed." in alice.post(path, {"name": "HF", "value": "b"}, follow=True).content.decode()
    gone = alice.post(f"{path}/remove", {"name": "HF"}, follow=True)
    assert "HF is deleted." in gone.content.decode() and not Secret.objects.exists()


def test_a_key_of_several_lines_stays_as_it_is(browser):
    key = "-----BEGIN-----\r\nabc\r\n-----END-----\r\n"
    browser("alice").post(OWN, {"name": "KEY", "value": key})
    assert store.value_of(Secret.objects.get()) == key.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"name": "1A", "value": CANARY}, "not begin with a digit"),
        ({"name": "", "value": CANARY}, "This field is required"),
        ({"name": "A", "value": ""}, "This field is required"),
        ({"name": "A", "value": CANARY * 5000}, "at most 65536"),
    ],
)
def test_a_refused_form_does_not_show_what_was_typed_as_the_value(browser, typed, said):
    page = browser("alice").post(OWN, typed)
    assert said in page.content.decode() and CANARY not in page.content.decode()
    assert not Secret.objects.exists() and page["Cache-Control"].count("no-store")


def test_submitters_see_the_names_and_cannot_set_them(browser):
    browser("alice").post(OF_PROJECT, {"name": "HF", "value": CANARY})
    page = browser("bob").get(OF_PROJECT).content.decode()
    assert "HF" in page and "alice" in page and '<form method="post" class="card' not in page
    assert CANARY not in page and "Delete HF" not in page
    assert browser("bob").get("/projects/default/").content.decode().count(OF_PROJECT) == 1
    assert OF_PROJECT not in browser("vera").get("/projects/default/").content.decode()


def test_own_secrets_are_shown_to_their_owner_only(browser):
    browser("bob").post(OWN, {"name": "MINE", "value": CANARY})
    assert "MINE" in browser("bob").get(OWN).content.decode()
    for person in ("root", "alice"):
        assert "MINE" not in browser(person).get(OWN).content.decode()
