"""Login, logout, the theme and the language."""

from __future__ import annotations

from django.conf import settings
from django.contrib import auth, messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import preferences, setup, tokens
from console.auth.login import login_steps, oidc_server, passkeys, passwords
from console.auth.person import person
from console.auth.session_store import Way
from console.forms.people import Code, Login

# The name of the page that asks for a code.
CODE = "login-code"
THEMES = ("auto", "light", "dark")
YEAR_S = 365 * 24 * 3600


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    form = Login(request.POST or None, initial={"next": request.GET.get("next", "")})
    if request.method == "POST" and form.is_valid() and (page := _next_page(request, form)):
        return redirect(page) if page == CODE else entered(request, form.cleaned_data["next"])
    return render(
        request,
        "people/login.html",
        {
            "form": form,
            "unclaimed": setup.needed(),
            "passkeys": not passkeys.why_not(passkeys.site_of(request)),
            "oidc": oidc_server.is_on() and settings.TRAINYARD.oidc_name,
        },
    )


@never_cache
@require_http_methods(["GET", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """The second step of a login: a code of the second factor, after the password."""
    now = timezone.now()
    found = login_steps.waiting(request.session, now)
    if found is None:
        messages.error(request, _("The login took too long. Begin again."))
        return redirect("login")
    form = Code(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            if login_steps.finish(request, found, form.cleaned_data["code"], now):
                return entered(request, found.onward)
            return redirect("login")
        except Refused as refused:
            form.add_error(refused.field or None, shown(refused.message))
    return render(request, "people/login_code.html", {"form": form, "name": found.user.username})


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    auth.logout(request)
    return redirect("login")


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Set the theme. It is kept in the browser, because it belongs to the screen and not to the person."""
    response = HttpResponseRedirect(_onward(request, request.POST.get("next", "")))
    wanted = request.POST.get("theme", "")
    if wanted in THEMES:
        response.set_cookie("theme", wanted, max_age=YEAR_S, samesite="Lax", secure=request.is_secure())
    return response


@require_POST
def language(request: HttpRequest) -> HttpResponse:
    """Set the language of pages: in this browser, and for a person who is logged in also at each later login."""
    response = HttpResponseRedirect(_onward(request, request.POST.get("next", "")))
    wanted = request.POST.get("language", "")
    if wanted and not preferences.is_language(wanted):
        return response
    preferences.show_in(response, wanted)
    if isinstance(request.user, User):
        with transaction.atomic():
            preferences.set_language(request.user, wanted)
    return response


def _next_page(request: HttpRequest, form: Login) -> str:
    """The page to go to after the password: that of the code, or home. Empty where the form is refused."""
    typed, now = form.cleaned_data, timezone.now()
    try:
        user = passwords.check(request, typed["username"], typed["password"], now)
    except Refused as refused:
        form.add_error(None, shown(refused.message))
        return ""
    page = login_steps.begin(request, user, now, Way.PASSWORD, typed["next"])
    if not page:
        form.add_error(None, _("This account was disabled at this moment."))
    return page


def entered(request: HttpRequest, wanted: str) -> HttpResponse:
    """The answer to the last step of a login."""
    user, now = person(request), timezone.now()
    for row in tokens.ending(now).filter(user=user):
        if tokens.ends_soon(row, now):
            messages.warning(
                request,
                _("Your token “{name}” ends on {expires_at}. See Account.").format(
                    name=row.name, expires_at=f"{row.expires_at:%Y-%m-%d}"
                ),
            )
    response = HttpResponseRedirect(_onward(request, wanted))
    preferences.show_all(response, user)
    return response


def _onward(request: HttpRequest, where: str) -> str:
    """Return the page to go to: only one of ours, so that a login link cannot send people to another site."""
    hosts, secure = {request.get_host()}, request.is_secure()
    if where and url_has_allowed_host_and_scheme(where, allowed_hosts=hosts, require_https=secure):
        return where
    return resolve_url("home")
