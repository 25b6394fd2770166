"""What a person has chosen for their pages. Cookies carry it from page to page, so that no page asks for it."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponseBase

from console.models import Preferences
from jobs.models import NotificationTarget
from jobs.notifications import digest

YEAR_S = 365 * 24 * 3600
# The cookies that a page's scripts get by attributes of its root element.
ZONE, KEYS = "zone", "keys"
OFF = "off"


def set_language(user: User, code: str) -> None:
    """Remember the language for the person's next login, wherever that is. Empty: as the browser asks."""
    Preferences.objects.update_or_create(user=user, defaults={"language": code})
    if code:
        NotificationTarget.objects.filter(user=user).update(language=code)


def of(user: User) -> Preferences:
    return Preferences.objects.filter(user=user).first() or Preferences(user=user)


def set_frame(user: User, time_zone: str, single_keys: bool) -> None:
    """Remember how times are shown (empty: in the browser's zone), and whether keys of one letter do something."""
    changes = {"time_zone": time_zone, "single_keys": single_keys}
    Preferences.objects.update_or_create(user=user, defaults=changes)


def set_digest(user: User, period: str, now: datetime) -> None:
    """Have a digest sent by e-mail, daily or weekly; empty: none."""
    chosen = of(user)
    if period == chosen.digest:
        return
    due = digest.next_due(digest.Period(period), chosen.time_zone, now) if period else None
    Preferences.objects.update_or_create(user=user, defaults={"digest": period, "digest_due_at": due})


def is_language(code: str) -> bool:
    return code in dict(settings.LANGUAGES)


@cache
def time_zones() -> tuple[str, ...]:
    """The names of places. Others are old names, or offsets that know no summer time."""
    return ("UTC", *sorted(name for name in available_timezones() if _is_place(name)))


def _is_place(name: str) -> bool:
    return "/" in name and not name.startswith(("Etc/", "SystemV/", "posix/", "right/", "US/", "Canada/"))


def show_all(response: HttpResponseBase, user: User) -> None:
    """Let this browser show pages as the person has chosen, at the login."""
    chosen = of(user)
    if chosen.language:
        show_in(response, chosen.language)
    show_frame(response, chosen.time_zone, chosen.single_keys)


def show_in(response: HttpResponseBase, code: str) -> None:
    """Let the browser see pages in this language from now on. Empty: in the language that it asks for."""
    _keep(response, settings.LANGUAGE_COOKIE_NAME, code if is_language(code) else "")


def show_frame(response: HttpResponseBase, time_zone: str, single_keys: bool) -> None:
    _keep(response, ZONE, time_zone if time_zone in time_zones() else "")
    _keep(response, KEYS, "" if single_keys else OFF)


def _keep(response: HttpResponseBase, name: str, value: str) -> None:
    if not value:
        response.delete_cookie(name, samesite="Lax")
        return
    response.set_cookie(
        name, value, max_age=YEAR_S, samesite="Lax", httponly=True, secure=settings.SESSION_COOKIE_SECURE
    )
