"""A digest is sent once a period, about a person's own jobs, to their e-mail addresses only; and it can be stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy

import pytest
from django.utils import timezone

from agents.models import Host
from console.auth import housekeeping, preferences
from console.models import Preferences
from jobs.models import Job, Membership, Notification, NotificationTarget
from jobs.notifications import digest, targets
from jobs.notifications.digest import Period
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.jobs.notifications.receivers import Mail, serving
from tests.unit.jobs.notifications.test_notifications import deliver

__all__ = ["browser", "cast", "project"]

DAY = timedelta(days=1)


@pytest.fixture
def wants(cast):
    """wants("bob", "daily"): bob has an e-mail address and a webhook, and wants digests."""

    def turn_on(name, period="daily", zone=""):
        user, now = getattr(cast, name), timezone.now()
        targets.add(user, "mail", f"{name}@example.org", [], 1.0, name, now)
        targets.add(user, "slack", "https://x.example/", [], 1.0, name, now)
        NotificationTarget.objects.update(confirmed_at=now)
        preferences.set_frame(user, zone, True)
        preferences.set_digest(user, period, now)
        return Preferences.objects.get(user=user).digest_due_at

    return turn_on


def ended(job, state, at, why=""):
    Job.every.filter(pk=job.pk).update(state=state, ended_at=at, error_message=why)


def sent():
    return [(row.target.way, row.text["text"]) for row in Notification.objects.order_by("pk")]


def test_a_digest_tells_of_own_jobs_once_a_period_by_mail_only(cast, project, wants):
    due = wants("bob")
    for state, why in (("SUCCEEDED", ""), ("FAILED", "Out of memory."), ("QUEUED", "")):
        ended(a_job(project, cast.bob), state, due - timedelta(hours=1) if state != "QUEUED" else None, why)
    ended(a_job(project, cast.bob), "FAILED", due - 2 * DAY, "Long ago.")
    ended(a_job(project, cast.bella), "FAILED", due - timedelta(hours=1), "Not his.")
    housekeeping.tidy(due - timedelta(seconds=1))
    assert sent() == []
    for _ in range(2):
        housekeeping.tidy(due + timedelta(minutes=1))
    ((way, text),) = sent()
    assert way == "mail"
    assert "1 succeeded, 1 failed, 1 waiting now." in text and "Out of memory." in text and "Waiting:" in text
    assert "Long ago" not in text and "Not his" not in text and "stop it: Account → Preferences" in text
    assert Preferences.objects.get(user=cast.bob).digest_due_at == due + DAY
    housekeeping.tidy(due + DAY)
    assert len(sent()) == 2


def test_nothing_is_sent_when_there_is_nothing_to_say_or_nobody_asked(cast, project, wants):
    due = wants("bob")
    ended(a_job(project, cast.bella), "FAILED", due - timedelta(hours=1))
    housekeeping.tidy(due)
    assert sent() == [] and Preferences.objects.get(user=cast.bob).digest_due_at == due + DAY


def test_a_disabled_person_and_a_lost_project_get_no_word(cast, project, wants):
    due = wants("bob")
    ended(a_job(project, cast.bob), "FAILED", due - timedelta(hours=1), "Out of memory.")
    Membership.objects.filter(user=cast.bob).delete()
    housekeeping.tidy(due)
    assert sent() == []
    Membership.objects.create(user=cast.bob, project=project, role="viewer")
    cast.bob.is_active = False
    cast.bob.save()
    housekeeping.tidy(due + DAY)
    assert sent() == []


def test_admins_are_told_of_hosts_with_trouble(cast, project, wants):
    due = wants("root")
    wants("alice")
    host = a_host()
    Host.objects.filter(pk=host.pk).update(status="unreachable", status_since=due - DAY)
    well = a_host(name="well")
    Host.objects.filter(pk=well.pk).update(status="up")
    housekeeping.tidy(due)
    ((_, text),) = sent()
    assert f"- {host.name}: Unreachable, since" in text and "well" not in text
    assert Notification.objects.get().target.user == cast.root


def test_long_lists_are_cut(cast, project, wants):
    due = wants("bob")
    for _ in range(digest.NAMED + 2):
        ended(a_job(project, cast.bob), "FAILED", due - timedelta(hours=1), "Out of memory.")
    housekeeping.tidy(due)
    ((_, text),) = sent()
    assert text.count("Out of memory.") == digest.NAMED and "- and more" in text


@pytest.mark.parametrize(
    ("period", "zone", "now", "due"),
    [
        (Period.DAILY, "", "2026-11-23 06:59", "2026-11-23 07:00"),
        (Period.DAILY, "", "2026-11-23 07:00", "2026-11-24 07:00"),
        (Period.DAILY, "Asia/Tokyo", "2026-11-23 06:00", "2026-11-23 22:00"),
        (Period.WEEKLY, "", "2026-11-23 06:59", "2026-11-23 07:00"),
        (Period.WEEKLY, "", "2026-11-23 07:00", "2026-11-30 07:00"),
        (Period.WEEKLY, "America/New_York", "2026-11-25 12:00", "2026-11-30 12:00"),
    ],
)
def test_a_digest_comes_in_the_morning_of_its_reader(period, zone, now, due):
    def moment(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert digest.next_due(period, zone, moment(now)) == moment(due)


def test_the_page_turns_digests_on_and_off(cast, browser):
    bob = browser("bob")
    page = bob.get("/account/preferences").content.decode()
    assert "no confirmed e-mail address" in page
    bob.post("/account/preferences", {"single_keys": "on", "digest": "weekly"})
    row = Preferences.objects.get(user=cast.bob)
    assert row.digest == "weekly" and row.digest_due_at.weekday() == 0
    targets.add(cast.bob, "mail", "bob@example.org", [], 1.0, "bob", timezone.now())
    NotificationTarget.objects.update(confirmed_at=timezone.now())
    assert "no confirmed e-mail address" not in bob.get("/account/preferences").content.decode()
    bob.post("/account/preferences", {"single_keys": "on", "digest": ""})
    row.refresh_from_db()
    assert row.digest == "" and row.digest_due_at is None


def test_a_mail_server_gets_the_letter(cast, project, wants, settings):
    due = wants("bob")
    ended(a_job(project, cast.bob), "FAILED", due - timedelta(hours=1), "Out of memory.")
    with serving(Mail()) as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        housekeeping.tidy(due)
        Notification.objects.update(due_at=timezone.now())
        deliver()
        ((_, letter),) = server.letters
    text = message_from_bytes(letter.removesuffix(b"\r\n.\r\n"), policy=policy.default)
    assert "your daily digest" in text["Subject"] and "Out of memory." in text.get_content()
