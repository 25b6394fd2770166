"""Logging in by the login server of a company (OIDC): the way there, and the way back.

The way there is a page with a link that goes on by itself. A form that is answered with a redirect to another site
would be stopped by `form-action 'self'` of the content security policy.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from agents.infra.places import AllTaken
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth.login import confirmation, login_steps, oidc, oidc_server, throttle
from console.auth.login.oidc_server import Claims, OidcFailed, Question
from console.auth.person import person
from console.auth.session_store import Way
from console.models import OidcIdentity
from console.views.confirmation import asked_again
from console.views.people.session import CODE, entered

log = logging.getLogger(__name__)

# In the browser's session: what it was sent to the login server with.
ASKED = "oidc"
GOOD_FOR_S = 600
LOGIN, CONNECT, CONFIRM = "login", "connect", "confirm"


@never_cache
@require_POST
def begin(request: HttpRequest) -> HttpResponse:
    return _go(request, LOGIN, request.POST.get("next", ""))


@never_cache
@require_POST
@login_required
def connect(request: HttpRequest) -> HttpResponse:
    """Connect the account of a person who is logged in with what the login server says of them."""
    if page := asked_again(request, _("connect your account")):
        return page
    return _go(request, CONNECT)


@never_cache
@require_POST
@login_required
def confirm(request: HttpRequest) -> HttpResponse:
    """Instead of the password: the login server asks for it, which counts for an hour."""
    return _go(request, CONFIRM)


@require_POST
@login_required
def disconnect(request: HttpRequest) -> HttpResponse:
    if page := asked_again(request, _("disconnect your account")):
        return page
    user = person(request)
    try:
        if oidc.disconnect(user, user.username, timezone.now()):
            messages.success(request, _("Your account is disconnected."))
    except Refused as refused:
        messages.error(request, shown(refused.message))
    return redirect("security")


@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """The browser comes back from the login server, with a code or with a refusal."""
    try:
        # Before the question is taken out of the session: the same address can be asked for again.
        with _place(request):
            return _come_back(request)
    except AllTaken:
        return _busy(request)


def _come_back(request: HttpRequest) -> HttpResponse:
    question = _question(request)
    if question is None:
        return _failed(
            request, _("This answer does not belong to a login of this browser. Begin again."), 400
        )
    if "code" not in request.GET:
        said = request.GET.get("error", "")[:100]
        return _failed(
            request, _("The login server said: {error}. Try again.").format(error=said or "?"), 403
        )
    try:
        claims = oidc_server.claims_for(question, request.GET["code"], request.GET.get("iss", ""))
        return _came_back(request, question, claims)
    except OidcFailed as problem:
        log.warning("A login by %s failed: %s", settings.TRAINYARD.oidc_url, problem)
        return _failed(request, shown(problem.message), 502)
    except Refused as refused:
        return _failed(request, shown(refused.message), 403)


def _go(request: HttpRequest, purpose: str, onward: str = "") -> HttpResponse:
    if not oidc_server.is_on():
        raise Http404
    path, now = reverse("oidc-callback"), timezone.now().timestamp()
    back = settings.TRAINYARD.url + path if settings.TRAINYARD.url else request.build_absolute_uri(path)
    question = oidc_server.new_question(back, now, purpose, onward, fresh=purpose == CONFIRM)
    try:
        with _place(request):
            address = oidc_server.address_for(question)
    except AllTaken:
        return _busy(request)
    except OidcFailed as problem:
        log.warning("The login server %s cannot be used: %s", settings.TRAINYARD.oidc_url, problem)
        return _failed(request, shown(problem.message), 502)
    request.session[ASKED] = question.kept()
    server = settings.TRAINYARD.oidc_name
    response = render(request, "people/oidc_onward.html", {"address": address, "server": server})
    response.headers["Refresh"] = f"0; url={address}"
    return response


def _place(request: HttpRequest) -> AbstractContextManager[None]:
    """A place among those who wait for the login server. Raises AllTaken."""
    return oidc_server.places.place(throttle.address_of(request))


def _busy(request: HttpRequest) -> HttpResponse:
    why = _("Too many logins are waiting for the login server. Try again in a moment.")
    return _failed(request, why, 503)


def _question(request: HttpRequest) -> Question | None:
    """What this browser was sent with, if this is the answer to it. It can be answered once."""
    kept: dict[str, Any] | None = request.session.pop(ASKED, None)
    if kept is None or not oidc_server.is_on():
        return None
    question = Question(**kept)
    is_recent = 0 <= timezone.now().timestamp() - question.asked_at < GOOD_FOR_S
    is_answer = constant_time_compare(question.state, request.GET.get("state", ""))
    return question if is_recent and is_answer else None


def _came_back(request: HttpRequest, question: Question, claims: Claims) -> HttpResponse:
    if question.purpose == LOGIN:
        return _logged_in(request, question, claims)
    user, now = person(request), timezone.now()
    if question.purpose == CONNECT:
        oidc.connect(user, claims, user.username, now)
        messages.success(request, _("Your account is connected."))
        return redirect("security")
    if not OidcIdentity.objects.filter(user=user, issuer=claims["iss"], sub=claims["sub"]).exists():
        return _failed(request, _("You have logged in there as somebody else."), 403)
    confirmation.mark(request.session, now)
    messages.success(request, _("It is you. Do again what you wanted; for an hour you are not asked."))
    return redirect("home")


def _logged_in(request: HttpRequest, question: Question, claims: Claims) -> HttpResponse:
    now = timezone.now()
    page = login_steps.begin(request, oidc.person_of(claims, now), now, Way.OIDC, question.onward)
    if page == CODE:
        return redirect(page)
    if not page:
        return redirect("login")
    # A browser that was logged in there before shows nothing about who sits in front of it now.
    confirmation.mark_at(request.session, float(claims.get("auth_time", 0)))
    return entered(request, question.onward)


def _failed(request: HttpRequest, why: str, status: int) -> HttpResponse:
    shown_page = {"why": why, "server": settings.TRAINYARD.oidc_name}
    response = render(request, "people/oidc_failed.html", shown_page, status=status)
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response
