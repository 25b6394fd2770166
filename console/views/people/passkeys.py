"""Passkeys: adds and removes them, and logs in with one. `static/passkeys.js` speaks with the device."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import sessions
from console.auth.login import confirmation, passkeys
from console.auth.person import person
from console.auth.session_store import Way
from console.views.confirmation import asked_again
from console.views.people.session import entered

# A signed answer has a few kB.
MAX_BODY = 64 * 1024


@never_cache
@require_POST
@login_required
def begin_adding(request: HttpRequest) -> HttpResponse:
    """What the device is asked. The person has given the password within the hour."""
    return _answer(
        request, lambda: _begun(request, *passkeys.begin_adding(passkeys.site_of(request), _sure(request)))
    )


@never_cache
@require_POST
@login_required
def add(request: HttpRequest) -> HttpResponse:
    def added() -> dict[str, Any]:
        document, user, site = _document(request), _sure(request), passkeys.site_of(request)
        name, credential = str(document.get("name", "")), document.get("credential")
        row = passkeys.add(site, user, name, _kept(request), credential, timezone.now())
        messages.success(request, _("The passkey “{name}” is added.").format(name=row.name))
        return {"next": reverse("security")}

    return _answer(request, added)


@require_POST
@login_required
def remove(request: HttpRequest, passkey_id: int) -> HttpResponse:
    user = person(request)
    if not user.passkeys.filter(pk=passkey_id).exists():
        raise Http404
    if page := asked_again(request, _("remove a passkey")):
        return page
    passkeys.remove(user, passkey_id, user.username, timezone.now())
    messages.success(request, _("The passkey is removed."))
    return redirect("security")


@never_cache
@require_POST
def begin_login(request: HttpRequest) -> HttpResponse:
    return _answer(request, lambda: _begun(request, *passkeys.begin_using(passkeys.site_of(request))))


@never_cache
@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """A passkey is the password and the second factor at once: the device has checked a finger, a face or a PIN."""

    def logged_in() -> dict[str, Any]:
        document, now = _document(request), timezone.now()
        credential, site = document.get("credential"), passkeys.site_of(request)
        user = passkeys.owner_of(request, site, _kept(request), credential, now)
        if not sessions.begin(request, user, now, Way.PASSKEY):
            raise Refused("", passkeys.NOT_GOOD)
        return {"next": entered(request, str(document.get("next", "")))["Location"]}

    return _answer(request, logged_in)


@never_cache
@require_POST
@login_required
def confirm(request: HttpRequest) -> HttpResponse:
    """Instead of the password: a passkey of the person who is logged in, which counts for an hour."""

    def confirmed() -> dict[str, Any]:
        credential, site, now = (
            _document(request).get("credential"),
            passkeys.site_of(request),
            timezone.now(),
        )
        if passkeys.owner_of(request, site, _kept(request), credential, now) != person(request):
            raise Refused("", passkeys.NOT_GOOD)
        confirmation.mark(request.session, now)
        return {"next": ""}

    return _answer(request, confirmed)


def _sure(request: HttpRequest) -> Any:
    """The person, who has given the password within the hour. Raises Refused."""
    if not confirmation.is_fresh(request.session, timezone.now()):
        raise Refused("", passkeys.NOT_SURE)
    return person(request)


def _begun(request: HttpRequest, options: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    request.session[passkeys.STATE] = kept
    return options


def _kept(request: HttpRequest) -> dict[str, Any]:
    """What was kept when the device was asked: it can be answered once. Raises Refused."""
    kept: dict[str, Any] | None = request.session.pop(passkeys.STATE, None)
    if kept is None:
        raise Refused("", passkeys.NOT_GOOD)
    return kept


def _document(request: HttpRequest) -> dict[str, Any]:
    try:
        found = json.loads(request.body) if len(request.body) <= MAX_BODY else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _answer(request: HttpRequest, act: Any) -> HttpResponse:
    try:
        return JsonResponse(act())
    except Refused as refused:
        return JsonResponse({"error": shown(refused.message)}, status=400)
