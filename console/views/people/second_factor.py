"""The pages on which a person sets up a second factor, gets recovery codes, and turns it off."""

from __future__ import annotations

import base64

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra import secrets as sealing
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth.login import second_factor as factors
from console.auth.person import person
from console.forms.people import Code
from console.presenters.people import qr_code
from console.views.confirmation import asked_again

# In the session, encrypted, until the first code is given: a key that nobody uses yet.
KEY = "second_factor_key"


@require_POST
@login_required
def begin(request: HttpRequest) -> HttpResponse:
    """Make a new key. The second factor that the person has holds until the new one is proved."""
    if page := asked_again(request, _("set up a second factor")):
        return page
    sealed = sealing.encrypt(factors.new_key())
    request.session[KEY] = base64.b64encode(sealed).decode()
    return redirect("second-factor")


@never_cache
@require_http_methods(["GET", "POST"])
@login_required
def second_factor(request: HttpRequest) -> HttpResponse:
    """Show the key as QR code and as text; a code of it turns the second factor on."""
    user, form = person(request), Code(request.POST or None)
    if KEY not in request.session:
        missing = factors.is_missing(user, "")
        state = {"has": factors.has(user), "required": missing and settings.TRAINYARD.require_second_factor}
        return render(request, "people/second_factor.html", state)
    key = sealing.decrypt(base64.b64decode(request.session[KEY]))
    if request.method == "POST" and form.is_valid():
        try:
            codes = factors.set_up(user, key, form.cleaned_data["code"], user.username, timezone.now())
        except Refused as refused:
            form.add_error(refused.field, shown(refused.message))
        else:
            del request.session[KEY]
            return _codes(request, codes)
    drawn = {"qr": qr_code.svg(factors.address_of(key, user)), "key": factors.key_text(key), "form": form}
    return render(request, "people/second_factor.html", drawn)


@never_cache
@require_POST
@login_required
def renew_codes(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if not factors.has(user):
        return redirect("security")
    if page := asked_again(request, _("make new recovery codes")):
        return page
    return _codes(request, factors.renew_codes(user, user.username, timezone.now()))


@require_POST
@login_required
def remove(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if page := asked_again(request, _("turn your second factor off")):
        return page
    if factors.remove(user, user.username, timezone.now()):
        messages.success(request, _("Your second factor is off. The login asks for your password only."))
    return redirect("security")


def _codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    """Show the recovery codes. Only the answer to this POST shows them."""
    response = render(request, "people/recovery_codes.html", {"codes": codes, "text": "\n".join(codes)})
    response.headers["Cache-Control"] = "no-store"
    return response
