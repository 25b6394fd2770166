"""Every minute: tokens that end soon are warned of once, and what is over is deleted."""

from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from console.auth import housekeeping, tokens
from console.models import DeviceLogin, LoginFailure, Session
from console.runtime import tasks
from console.runtime.celery_app import app
from jobs.models import Notification, NotificationTarget
from jobs.notifications import sender, targets
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project"]

DAY = timedelta(days=1)


def warned():
    return [row.text["title"] for row in Notification.objects.order_by("pk")]


def test_the_owner_of_a_token_is_warned_once_a_week_before_its_end(cast):
    now = timezone.now()
    targets.add(cast.bob, "slack", "https://x.example/", [], 1.0, "bob", now)
    targets.add(cast.bella, "slack", "https://x.example/", [], 1.0, "bella", now)
    NotificationTarget.objects.update(confirmed_at=now)
    row, _ = tokens.create(cast.bob, "ci", now, days=60)
    gone, _ = tokens.create(cast.bob, "revoked", now, days=60)
    tokens.revoke(cast.bob, gone.pk, now)
    housekeeping.tidy(now + 52 * DAY)
    assert warned() == []
    for _ in range(2):
        housekeeping.tidy(now + 53 * DAY)
    assert warned() == [f"Trainyard: your token “ci” ends on {row.expires_at:%Y-%m-%d}"]
    assert Notification.objects.get().target.user == cast.bob


def test_a_token_for_a_week_is_warned_of_on_its_last_days(cast):
    now = timezone.now()
    row, _ = tokens.create(cast.bob, "short", now, days=8)
    assert not tokens.ends_soon(row, now) and not tokens.ends_soon(row, now + 5 * DAY)
    assert tokens.ends_soon(row, now + 7 * DAY) and not tokens.ends_soon(row, now + 8 * DAY)


def test_a_login_warns_of_a_token_that_ends_soon(cast):
    tokens.create(cast.bob, "nightly", timezone.now() - 85 * DAY)
    page = Client().post("/login", {"username": "bob", "password": PASSWORD}, follow=True).content.decode()
    assert "Your token “nightly” ends on" in page


def test_a_webhook_can_tell_a_message_about_the_account_from_one_about_a_job(cast, monkeypatch):
    now, sent = timezone.now(), []
    row, _ = targets.add(cast.bob, "hook", "https://x.example/", [], 1.0, "bob", now)
    NotificationTarget.objects.update(confirmed_at=now)
    tokens.create(cast.bob, "ci", now - 85 * DAY)
    housekeeping.tidy(now)
    monkeypatch.setattr(sender, "_post_bytes", lambda url, data, headers: sent.append(data))
    sender.send(Notification.objects.get(), {"address": "https://x.example/", "secret": "whsec_AAAA"})
    assert b'"type": "account"' in sent[0]


def test_what_is_over_is_deleted(cast, browser):
    now = timezone.now()
    browser("bob")
    LoginFailure.objects.create(name="x", address="y", at=now)
    housekeeping.tidy(now)
    assert Session.objects.count() == 1 == LoginFailure.objects.count()
    housekeeping.tidy(now + 30 * DAY)
    assert not Session.objects.exists() and not LoginFailure.objects.exists()


def test_beat_asks_for_it_every_minute():
    entry = app.conf.beat_schedule["tidy"]
    assert entry["task"] == tasks.tidy.name and entry["schedule"] == 60.0


def test_a_time_that_was_put_back_locks_nobody_out_and_keeps_no_session(browser, cast):
    browser("bob")
    now, ahead = timezone.now(), timezone.now() + 3650 * DAY
    LoginFailure.objects.create(name="bob", address="10.0.0.1", at=ahead)
    DeviceLogin.objects.create(expires_at=ahead, made_at=ahead)
    Session.objects.update(expire_date=ahead)
    housekeeping.bring_back(now)
    assert LoginFailure.objects.get().at == now
    assert not DeviceLogin.objects.exists()
    assert Session.objects.get().expire_date <= now + 14 * DAY
