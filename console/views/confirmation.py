"""The page that asks for the password again, or for a code of the second factor, in the middle of an act.

The typed form is kept and sent again with it.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth.login import confirmation, oidc_server, passwords, second_factor
from console.auth.person import person
from console.forms.people import Confirm
from console.models import OidcIdentity

ASKED = "confirm_password"
NOT_KEPT = {"csrfmiddlewaretoken", ASKED}


def asked_again(request: HttpRequest, act: str) -> HttpResponse | None:
    """The page that asks for the password, or None if the act may go on. `act` completes "To ...".

    Call it after the check of the permission, so that nobody learns here what exists. A form with a password in it must
    not come here, because its fields are written into the page: it has a field of its own (`refusal`).
    """
    if confirmation.is_fresh(request.session, timezone.now()):
        return None
    form = Confirm(second_factor.has(person(request)), request.POST if ASKED in request.POST else None)
    if form.is_valid():
        problem = refusal(request, form.cleaned_data[ASKED])
        if not problem:
            return None
        form.add_error(ASKED, problem)
    kept = [
        (name, value) for name, values in request.POST.lists() if name not in NOT_KEPT for value in values
    ]
    ways = {"passkeys": person(request).passkeys.exists(), **_oidc(request)}
    response = render(request, "people/confirm.html", {"form": form, "kept": kept, "act": act, **ways})
    response.headers["Cache-Control"] = "no-store"
    return response


def _oidc(request: HttpRequest) -> dict[str, str]:
    """The name of the login server, for a person who may confirm there."""
    is_known = oidc_server.is_on() and OidcIdentity.objects.filter(user=person(request)).exists()
    return {"oidc": settings.TRAINYARD.oidc_name} if is_known else {}


def refusal(request: HttpRequest, password: str) -> str:
    """Why the password that was given now is not enough; empty if it is, or if it was given lately."""
    now = timezone.now()
    if confirmation.is_fresh(request.session, now):
        return ""
    if not password:
        return _("You gave your password more than an hour ago. Type it again.")
    try:
        passwords.confirm_any(request, password, now)
    except Refused as refused:
        return shown(refused.message)
    return ""
