"""The pages of notifications: who may see and change them, what the form takes, and that no secret is shown again."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_network

import pytest
from django.utils import timezone

from agents.infra.secrets import decrypt_fields
from jobs.models import AuditEntry, Notification, NotificationTarget, Project
from jobs.notifications import email_opt_in

HOOK = "http://127.0.0.1:9/hook/0123456789-0123456789-T0KEN"
MINE, OURS = "/account/notifications", "/projects/default/notifications"


@pytest.fixture(autouse=True)
def allowed(settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, notify_private=(ip_network("127.0.0.0/8"),))
    settings.EMAIL_HOST = "mail.example"


def form(**changes):
    return {"way": "hook", "address": HOOK, "events": ["failed", "stalled"], "wait_hours": "2", **changes}


def test_the_secret_of_a_webhook_is_shown_only_when_it_is_added(browser):
    bob = browser("bob")
    answer = bob.post(f"{MINE}/add", form())
    row = NotificationTarget.objects.get()
    secret = decrypt_fields(row.sealed)["secret"]
    assert decrypt_fields(row.sealed)["address"] == HOOK and secret.startswith("whsec_")
    assert secret in answer.content.decode() and "no-store" in answer.headers["Cache-Control"]
    page = bob.get(MINE).content.decode()
    assert secret not in page and "T0KEN" not in page.replace("…OKEN", "") and "http://127.0.0.1:9/…" in page
    assert (
        b"T0KEN" not in bytes(row.sealed) and row.user.username == "bob" and not AuditEntry.objects.exists()
    )


def test_a_target_is_changed_tested_and_removed(browser):
    bob = browser("bob")
    bob.post(f"{MINE}/add", form(way="mail", address="bob@example.org"))
    row = NotificationTarget.objects.get()
    email_opt_in.accept(row, timezone.now())
    Notification.objects.all().delete()
    at = f"/notifications/{row.pk}"
    bob.post(f"{at}/change", {f"t{row.pk}-events": ["waiting"], f"t{row.pk}-wait_hours": "1.5"})
    row.refresh_from_db()
    assert (row.events, row.wait_hours) == (["waiting"], 1.5)
    for _ in range(3):
        answer = bob.post(f"{at}/test", follow=True)
    assert Notification.objects.count() == 1 and "hx-get" in answer.content.decode()
    Notification.objects.update(due_at=None, given_up_at=row.created_at, answer="550 <b>no such user</b>")
    page = bob.get(f"{MINE}/log").content.decode()
    assert "550 &lt;b&gt;no such user&lt;/b&gt;" in page and "Given up" in page and "hx-get" not in page
    bob.post(f"{at}/remove")
    assert not NotificationTarget.objects.exists()


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"way": "mail", "address": "nobody"}, "address", "valid email"),
        ({"address": "ftp://example.org/"}, "address", "https://"),
        ({"address": "http://10.0.0.1/hook"}, "address", "10.0.0.1 leads to a private"),
        ({"address": "https://[::1]/hook"}, "address", "TRAINYARD_NOTIFY_PRIVATE"),
        ({"address": "https://a..example/x"}, "address", "not the name of a host"),
        ({"address": f"https://{'a' * 64}.example/x"}, "address", "not the name of a host"),
        ({"events": ["gossip"]}, "events", "not one of the available choices"),
        ({"events": []}, "events", "required"),
        ({"wait_hours": "-3"}, "wait_hours", "greater"),
    ],
)
def test_an_invalid_target_is_refused_at_its_field_and_the_form_keeps_its_values(
    browser, typed, field, words
):
    answer = browser("bob").post(f"{MINE}/add", form(**typed))
    assert words in str(answer.context["form"].errors[field]) and not NotificationTarget.objects.exists()
    if address := typed.get("address"):
        assert address in answer.content.decode()


def test_an_email_target_needs_a_mail_server(browser, settings):
    settings.EMAIL_HOST = ""
    answer = browser("bob").post(f"{MINE}/add", form(way="mail", address="bob@example.org"))
    assert "TRAINYARD_SMTP_URL" in str(answer.context["form"].errors["way"])


def test_admins_of_a_project_manage_its_targets_and_idle_rule_and_the_audit_records_it(browser):
    alice = browser("alice")
    alice.post(f"{OURS}/add", form())
    row = NotificationTarget.objects.get(project__name="default")
    alice.post(f"{OURS}/idle", {"minutes": "30", "stops": "1"})
    project = Project.objects.get(name="default")
    assert (project.idle_minutes, project.idle_stops) == (30, True)
    assert 'value="30"' in alice.get(OURS).content.decode()
    answer = alice.post(f"{OURS}/idle", {"minutes": "0", "stops": ""})
    assert answer.context["idle"].errors["minutes"]
    alice.post(f"/notifications/{row.pk}/remove")
    told = AuditEntry.objects.order_by("pk").values_list("what", flat=True)
    assert list(told) == ["notice.add", "project.idle_rule", "notice.remove"]
    assert "T0KEN" not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    ("name", "page", "others"),
    [("alice", 200, 302), ("root", 200, 302), ("bob", 403, 403), ("vera", 403, 403), ("charlie", 404, 404)],
)
def test_only_admins_see_and_change_the_notifications_of_a_project(browser, name, page, others):
    browser("alice").post(f"{OURS}/add", form())
    browser("bella").post(f"{MINE}/add", form())
    ours, hers = NotificationTarget.objects.order_by("pk")
    person = browser(name)
    assert person.get(OURS).status_code == person.get(f"{OURS}/log").status_code == page
    assert person.post(f"{OURS}/idle", {"minutes": ""}).status_code == others
    for act in ("test", "remove"):
        assert person.post(f"/notifications/{hers.pk}/{act}").status_code == 404
        assert person.post(f"/notifications/{ours.pk}/{act}").status_code == others
    assert person.get(MINE).status_code == 200
    assert browser().get(MINE).status_code == 302
    assert NotificationTarget.objects.filter(pk=hers.pk).exists()


def test_no_name_server_is_asked_while_a_person_waits(browser, monkeypatch):
    """A name server that does not answer would keep a thread of web for 20 s, and 16 such posts all of them."""

    def ask_nobody(host, port, *args, flags=0, **options):
        assert flags & socket.AI_NUMERICHOST, f"web asked a name server for {host}"
        raise socket.gaierror(socket.EAI_NONAME, "not an address")

    monkeypatch.setattr(socket, "getaddrinfo", ask_nobody)
    browser("bob").post(f"{MINE}/add", form(address="https://hooks.example/x"))
    assert NotificationTarget.objects.get().shown.startswith("https://hooks.example/")
