"""The link in each e-mail that stops further ones: for people a page, for mail programs one request (RFC 8058)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from jobs.models import AuditEntry, NotificationTarget
from jobs.notifications import create, email_opt_in, targets
from jobs.rules.notifications import EVENTS
from tests.unit.console.views.conftest import browser, cast
from tests.unit.jobs.conftest import project
from tests.unit.jobs.notifications.test_notifications import deliver

__all__ = ["browser", "cast", "project"]
HTTPS = "https://train.example.org"


@pytest.fixture(autouse=True)
def known(settings):
    settings.EMAIL_HOST = "mail.example"
    settings.TRAINYARD = replace(settings.TRAINYARD, url=HTTPS)
    return settings


def added(owner, language=""):
    now = timezone.now()
    row, _ = targets.add(owner, "mail", "bob@example.org", list(EVENTS), 4.0, "alice", now, language)
    email_opt_in.send_letter(row, HTTPS, "alice", now)
    deliver()
    email_opt_in.vouch(row, "root", now)
    row.refresh_from_db()
    create.create_test(row, "alice", now)
    deliver()
    return row


@pytest.fixture
def letter(cast):
    added(cast.bob)
    return mail.outbox[-1]


def path_in(letter):
    header = re.fullmatch(rf"<{HTTPS}(/unsubscribe/\S+)>", letter.extra_headers["List-Unsubscribe"])
    assert letter.body.endswith(f"To get no more of these e-mails: {HTTPS}{header[1]}")
    return header[1]


def test_a_mail_program_unsubscribes_with_one_request(letter):
    """Without a cookie, a page or a login, and without being sent elsewhere."""
    assert letter.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    program = Client(enforce_csrf_checks=True)
    answer = program.post(path_in(letter), {"List-Unsubscribe": "One-Click"})
    assert answer.status_code == 200 and not NotificationTarget.objects.exists()
    assert program.post(path_in(letter), {"List-Unsubscribe": "One-Click"}).status_code == 200


def test_a_person_is_asked_by_a_page(letter):
    visitor = Client(enforce_csrf_checks=True)
    page = visitor.get(path_in(letter))
    assert "bob@example.org" in page.content.decode() and "no-store" in page.headers["Cache-Control"]
    visitor.head(path_in(letter))
    visitor.post(path_in(letter), {"other": "words"})
    assert NotificationTarget.objects.exists(), "only the button stops it"
    [button] = re.findall(r'<button[^>]* name="([^"]+)" value="([^"]+)"', page.content.decode())
    assert "Your address was removed." in visitor.post(path_in(letter), dict([button])).content.decode()
    assert not NotificationTarget.objects.exists()
    assert "Your address was removed." in visitor.get(path_in(letter)).content.decode()


def test_a_link_that_is_not_whole_says_so_and_shows_nobody(letter):
    link = path_in(letter)
    signed = link.rpartition("/")[2]
    number, _, rest = signed.partition("-")
    for token in (signed[:-1], f"{int(number) + 1}-{rest}", "x", "1-1", f"{number}-{rest.partition(':')[0]}"):
        answer = Client().post(f"/unsubscribe/{token}", {"List-Unsubscribe": "One-Click"})
        assert answer.status_code == 404 and b"bob@" not in answer.content
    assert NotificationTarget.objects.exists()


def test_an_old_link_stops_no_later_target_of_the_same_number(letter, cast):
    link, old = path_in(letter), NotificationTarget.objects.get()
    later = old.created_at.replace(year=old.created_at.year + 1)
    NotificationTarget.objects.update(created_at=later)
    Client().post(link, {"List-Unsubscribe": "One-Click"})
    assert NotificationTarget.objects.exists()


def test_the_letter_that_asks_has_no_such_link(letter):
    first = mail.outbox[0]
    assert "/notified/" in first.body and "unsubscribe" not in first.body.lower() and not first.extra_headers


def test_a_projects_admins_read_who_stopped_it(cast, project):
    added(project)
    Client().post(path_in(mail.outbox[-1]), {"List-Unsubscribe": "One-Click"})
    entry = AuditEntry.objects.filter(what="notice.remove").get()
    assert (entry.actor, entry.before["address"]) == ("its owner", "bob@example.org")


@pytest.mark.parametrize(("url", "names"), [("", set()), ("http://train.example.org", {"List-Unsubscribe"})])
def test_a_mail_program_is_offered_only_what_it_may_ask(known, cast, url, names):
    """One click needs https; without an address of the deployment there is no link at all."""
    known.TRAINYARD = replace(known.TRAINYARD, url=url)
    added(cast.bob)
    assert set(mail.outbox[-1].extra_headers) == names
    assert ("To get no more" in mail.outbox[-1].body) is bool(url)
