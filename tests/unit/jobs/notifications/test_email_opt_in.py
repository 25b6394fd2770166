"""An e-mail address must confirm before it is notified: by a link in a letter, which nobody else ever sees."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from email import message_from_bytes, policy

import pytest
from django.test import Client
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import tokens
from jobs import services
from jobs.models import AuditEntry, Notification, NotificationTarget
from jobs.notifications import delivery, email_opt_in, sender, targets
from tests.unit.console.views.conftest import browser, cast
from tests.unit.jobs.conftest import alice, project, spec
from tests.unit.jobs.notifications.receivers import Mail, serving
from tests.unit.jobs.notifications.test_notifications import cancel, deliver

__all__ = ["alice", "browser", "cast", "project"]
TYPED = {"way": "mail", "address": "bob@example.org", "events": ["cancelled"], "wait_hours": "4"}


@pytest.fixture
def mail(settings):
    with serving(Mail()) as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


def texts(mail):
    found = [
        message_from_bytes(letter.removesuffix(b"\r\n.\r\n"), policy=policy.default)
        for _, letter in mail.letters
    ]
    return [letter.get_content() for letter in found]


def send():
    for pk in delivery.due(timezone.now()):
        sender.deliver(pk, timezone.now())


def job_of(user, project):
    return services.submit(project, user, spec(), "default", None, timezone.now())


def test_nothing_is_sent_before_the_owner_has_followed_the_link(browser, cast, project, mail, caplog):
    caplog.set_level(logging.DEBUG)
    bob = browser("bob")
    page = bob.post("/account/notifications/add", TYPED, follow=True).content.decode()
    assert "Not confirmed yet" in page and 'aria-label="Vouch for' not in page
    cancel(job_of(cast.bob, project))
    deliver()
    [letter] = texts(mail)
    link = re.search(r"https?://[^/]+(/notified/([\w-]{43}))", letter)
    assert "cancelled" not in letter and "the jobs of bob" in letter
    log = bob.get("/account/notifications").content.decode()
    assert link[2] not in log + caplog.text + str(list(NotificationTarget.objects.values())) + str(
        list(Notification.objects.values())
    )
    visitor = Client()
    assert "bob@example.org" in visitor.get(link[1]).content.decode()
    visitor.head(link[1])
    assert NotificationTarget.objects.get().confirmed_at is None, "a GET alone does not confirm"
    assert "You will be notified" in visitor.post(link[1], {"answer": "yes"}).content.decode()
    assert (
        visitor.get(link[1]).status_code == 404 and visitor.post(link[1], {"answer": "no"}).status_code == 404
    )
    deliver()
    assert len(mail.letters) == 1, "events before the confirmation are not notified"
    cancel(job_of(cast.bob, project))
    deliver()
    assert "Cancelled by alice." in texts(mail)[1]


def test_an_owner_who_answers_no_is_removed(browser, mail):
    browser("bob").post("/account/notifications/add", TYPED)
    send()
    link = re.search(r"/notified/[\w-]+", texts(mail)[0])[0]
    assert "was removed" in Client().post(link, {"answer": "no"}).content.decode()
    assert not NotificationTarget.objects.exists()


def test_a_new_link_ends_the_old_one_and_both_end_in_time(browser, mail):
    bob = browser("bob")
    bob.post("/account/notifications/add", TYPED)
    send()
    row = NotificationTarget.objects.get()
    bob.post(f"/notifications/{row.pk}/ask")
    send()
    old, new = (re.search(r"/notified/([\w-]+)", text)[1] for text in texts(mail))
    now = timezone.now()
    assert email_opt_in.target_of_link(old, now) is None and email_opt_in.target_of_link(new, now) == row
    assert email_opt_in.target_of_link(new, now + timedelta(days=8)) is None
    assert email_opt_in.target_of_link("", now) is None


def test_confirmation_letters_of_a_day_are_bounded(alice, mail):
    now = timezone.now()
    for number in range(email_opt_in.MAX_LETTERS_A_DAY + 1):
        row, _ = targets.add(alice, "mail", f"x{number}@example.org", [], 4.0, "alice", now)
        if number == email_opt_in.MAX_LETTERS_A_DAY:
            with pytest.raises(Refused, match="in a day"):
                email_opt_in.send_letter(row, "http://t", "alice", now)
            email_opt_in.send_letter(row, "http://t", "alice", now + timedelta(days=1))
        else:
            email_opt_in.send_letter(row, "http://t", "alice", now)
            targets.remove(row, "alice", now)


def test_an_admin_vouches_and_others_may_not(browser, cast, mail, project):
    bob, root = browser("bob"), browser("root")
    bob.post("/account/notifications/add", TYPED)
    row = NotificationTarget.objects.get()
    assert bob.post(f"/notifications/{row.pk}/vouch").status_code in (403, 404)
    answer = bob.post(f"/notifications/{row.pk}/test", follow=True).content.decode()
    assert (
        "has not confirmed the address yet" in answer
        and not Notification.objects.filter(event="test").exists()
    )
    script = Client(
        headers={"authorization": f"Bearer {tokens.create(cast.root, 'test', timezone.now())[1]}"}
    )
    told = script.post(f"/api/v1/notifications/{row.pk}:vouch", {}, content_type="application/json").json()
    assert (told["proved"], told["provedBy"]) == (True, "root")
    again = script.post(f"/api/v1/notifications/{row.pk}:vouch", {}, content_type="application/json")
    assert again.status_code == 400 and "already" in again.json()["error"]["message"]
    assert AuditEntry.objects.exclude(what="token.make").get().what == "notice.vouch"
    root.post("/projects/default/notifications/add", TYPED)
    ours = NotificationTarget.objects.get(project=project)
    assert 'aria-label="Vouch for' in root.get("/projects/default/notifications").content.decode()
    root.post(f"/notifications/{ours.pk}/vouch")
    ours.refresh_from_db()
    assert ours.confirmed_by == "root" and not Notification.objects.filter(target=ours).exists()
