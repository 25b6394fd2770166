"""What a person has chosen for their pages. A cookie carries it from page to page, so that no page asks for it."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponseBase

from console.models import Preferences

YEAR_S = 365 * 24 * 3600


def set_language(user: User, code: str) -> None:
    """Remember the language for the person's next login, wherever that is. Empty: as the browser asks."""
    Preferences.objects.update_or_create(user=user, defaults={"language": code})


def language_of(user: User) -> str:
    return Preferences.objects.filter(user=user).values_list("language", flat=True).first() or ""


def is_language(code: str) -> bool:
    return code in dict(settings.LANGUAGES)


def show_in(response: HttpResponseBase, code: str) -> None:
    """Let the browser see pages in this language from now on. Empty: in the language that it asks for."""
    if is_language(code):
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME,
            code,
            max_age=YEAR_S,
            samesite="Lax",
            httponly=True,
            secure=settings.SESSION_COOKIE_SECURE,
        )
    else:
        response.delete_cookie(settings.LANGUAGE_COOKIE_NAME, samesite="Lax")
