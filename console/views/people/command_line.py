"""The page about the command line client: how to install it, the client itself, and the confirmation of its logins."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from console.auth import tokens
from console.auth.login import device_logins
from console.auth.person import person
from console.auth.scopes import Grant, Scope
from console.client import build_wheel
from console.forms.people import DeviceLogin
from console.views.confirmation import asked_again
from jobs.models import Project

# pip cannot log in. The address that a person copies is good for so long.
LINK_S = 24 * 3600


def _signer() -> signing.TimestampSigner:
    return signing.TimestampSigner(salt="console.client", sep=".")


@never_cache
@require_safe
@login_required
def command_line(request: HttpRequest) -> HttpResponse:
    name = build_wheel.file_name()
    ticket = _signer().sign(str(person(request).pk))
    here = request.build_absolute_uri("/").rstrip("/")
    wheel = request.build_absolute_uri(reverse("client-wheel", args=[ticket, name]))
    context = {
        "wheel": wheel,
        "install": f"pip install {wheel}",
        "log_in": f"trainyard login {here}",
        "name": name,
    }
    return render(request, "people/command_line.html", {**context, "form": DeviceLogin(person(request))})


@never_cache
@require_safe
def wheel(request: HttpRequest, ticket: str, name: str) -> HttpResponse:
    """The client, for pip: whoever has a link that a person was shown today."""
    try:
        user_id = int(_signer().unsign(ticket, max_age=LINK_S))
    except (signing.BadSignature, ValueError):
        raise Http404 from None
    if name != build_wheel.file_name() or not User.objects.filter(pk=user_id, is_active=True).exists():
        raise Http404
    answer = HttpResponse(build_wheel.wheel(), content_type="application/zip")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@never_cache
@require_http_methods(["GET", "POST"])
@login_required
def device_login(request: HttpRequest) -> HttpResponse:
    """Confirm or refuse a login of the client. GET shows it, and changes nothing."""
    user, now = person(request), timezone.now()
    form = DeviceLogin(user, request.POST if request.method == "POST" else None, initial=_initial(request))
    row = device_logins.waiting(request.POST.get("code") or request.GET.get("code", ""), now)
    if request.method == "POST" and form.is_valid() and row is not None:
        if "deny" in request.POST:
            device_logins.deny(row, now)
            messages.success(request, _("The login is refused. Nobody gets a token."))
            return redirect("command-line")
        if page := asked_again(request, _("give the command line a token")):
            return page
        typed = form.cleaned_data
        project: Project | None = typed["project"]
        grant = Grant(Scope(typed["scope"]), project.pk if project else None)
        if device_logins.confirm(row, user, grant, typed["days"] or tokens.DEFAULT_DAYS):
            messages.success(request, _("The command line is logged in. You can close this page."))
            return redirect("command-line")
        row = None
    code = device_logins.shown(row.code) if row else ""
    status = 200 if row or request.method == "GET" else 400
    return render(
        request, "people/device_login.html", {"form": form, "row": row, "code": code}, status=status
    )


def _initial(request: HttpRequest) -> dict[str, object]:
    return {"code": request.GET.get("code", "")[:20], "scope": Scope.SUBMIT, "days": tokens.DEFAULT_DAYS}
