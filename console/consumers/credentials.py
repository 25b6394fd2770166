"""Finds the user of a socket: by the session cookie from our own pages, or by the bearer token of a script."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.http.request import validate_host
from django.utils import timezone

from console.auth import sessions, tokens
from console.runtime import languages

Scope = Mapping[str, Any]


def header(scope: Scope, name: str) -> str:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted), "")


def bearer(scope: Scope) -> str:
    kind, _, token = header(scope, "authorization").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def from_our_page(scope: Scope) -> bool:
    """Browsers send cookies with requests from any site, so a socket with a cookie must come from a page of ours.

    A browser never adds a token by itself, so a request with a token may come from anywhere.
    """
    if bearer(scope):
        return True
    origin = urlsplit(header(scope, "origin"))
    host = header(scope, "host")
    if not origin.hostname or origin.scheme not in ("http", "https"):
        return False
    if settings.TRAINYARD.url and origin.geturl() == settings.TRAINYARD.url:
        return True
    name = urlsplit(f"//{host}").hostname or ""
    return origin.netloc.lower() == host.lower() and validate_host(_bracketed(name), settings.ALLOWED_HOSTS)


def user(scope: Scope) -> User | None:
    """The socket's user, read again at each check: a logout, a new password or a revoked token ends the socket."""
    token = bearer(scope)
    if token:
        return tokens.owner(token, timezone.now())
    key = _session_key(scope)
    return sessions.user_of(key) if key else None


def credential(scope: Scope) -> str:
    """The token or the session key by which `user` finds the user."""
    return bearer(scope) or _session_key(scope)


def address(scope: Scope) -> str:
    """The client's address, for the audit."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def language(scope: Scope) -> str:
    """The language of the page that opened the socket. A script has a token, and gets English."""
    if bearer(scope):
        return settings.LANGUAGE_CODE
    return languages.chosen(_cookies(scope), header(scope, "accept-language"))


def _session_key(scope: Scope) -> str:
    return _cookies(scope).get(settings.SESSION_COOKIE_NAME, "")


def _cookies(scope: Scope) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header(scope, "cookie")).items()}
    except CookieError:
        return {}


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name
