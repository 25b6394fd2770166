"""What the console does every minute: folds the counts of logins, warns of tokens that end, sends digests, and deletes
what is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from agents.infra.texts import said
from console.auth import tokens
from console.auth.login import device_logins, login_audit, throttle
from console.models import ApiToken, DeviceLogin, LoginFailure, Preferences, Session
from jobs.notifications import create, digest


def tidy(now: datetime) -> None:
    """Safe to run twice at the same time, late, or never."""
    login_audit.fold(now)
    warn_of_tokens(now)
    send_digests(now)
    Session.objects.filter(expire_date__lt=now).delete()
    DeviceLogin.objects.filter(expires_at__lte=now).delete()
    LoginFailure.objects.filter(at__lte=now - throttle.WINDOW).delete()


def bring_back(now: datetime) -> None:
    """The time was set back. What lies in the future then would lock people out, or let them in, for as long."""
    LoginFailure.objects.filter(at__gt=now).update(at=now)
    DeviceLogin.objects.filter(expires_at__gt=now + device_logins.LIFE).delete()
    latest = now + timedelta(seconds=settings.SESSION_COOKIE_AGE)
    Session.objects.filter(expire_date__gt=latest).update(expire_date=latest)


def send_digests(now: datetime) -> None:
    """Send the digests that are due. After a time without a worker each person gets one, and not one for each day."""
    due = Preferences.objects.filter(digest_due_at__lte=now).exclude(digest="").select_related("user")
    for row in due:
        period = digest.Period(row.digest)
        following = digest.next_due(period, row.time_zone, now)
        with transaction.atomic():
            same = Preferences.objects.filter(pk=row.pk, digest_due_at=row.digest_due_at)
            if same.update(digest_due_at=following) and row.user.is_active and row.digest_due_at:
                digest.send(row.user, period, row.digest_due_at, now)


def warn_of_tokens(now: datetime) -> None:
    """Tell the owner of each token that ends soon, once, at all the addresses that they have confirmed."""
    for row in tokens.ending(now).filter(warned_at=None).select_related("user"):
        if not tokens.ends_soon(row, now):
            continue
        with transaction.atomic():
            if ApiToken.objects.filter(pk=row.pk, warned_at=None).update(warned_at=now):
                _warn(row.user, row, now)


def _warn(user: User, row: ApiToken, now: datetime) -> None:
    create.create_for_person(
        user,
        key=f"token:{row.pk}",
        title=said(
            "Trainyard: your token “{name}” ends on {date}",
            name=" ".join(row.name.split()),
            date=f"{row.expires_at:%Y-%m-%d}",
        ),
        text=said(
            "Programs that use it are refused from {time} UTC on. Make another one before, and revoke this one: "
            "Account → API tokens.",
            time=f"{row.expires_at:%Y-%m-%d %H:%M}",
        ),
        url=f"{settings.TRAINYARD.url}/account" if settings.TRAINYARD.url else "",
        now=now,
    )
