"""The page of what protects a person's account: the second factor, and where they are logged in."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from agents.infra.sentences import shown
from console.auth import session_list
from console.auth.login import oidc_server, passkeys, second_factor
from console.auth.person import person
from console.models import OidcIdentity, SecondFactor
from console.presenters.people import sessions as presenter


@require_safe
@login_required
def security(request: HttpRequest) -> HttpResponse:
    user = person(request)
    factor = SecondFactor.objects.filter(user=user).first()
    state: dict[str, object] = {
        "factor": factor,
        "codes_left": second_factor.codes_left(user) if factor else 0,
    }
    state |= {
        "passkeys": user.passkeys.all(),
        "no_passkeys": shown(passkeys.why_not(passkeys.site_of(request))),
    }
    if oidc_server.is_on():
        identity = OidcIdentity.objects.filter(user=user).first()
        state |= {"oidc": settings.TRAINYARD.oidc_name, "identity": identity}
    rows = presenter.rows(user, request.session.session_key, timezone.now())
    return render(request, "people/security.html", {"sessions": rows, **state})


@require_POST
@login_required
def end_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """End one session of the person. To end the one that asks is to log out."""
    user = person(request)
    with transaction.atomic():
        ended = session_list.end(user, session_id, user.username, timezone.now())
    if not ended:
        raise Http404
    messages.success(request, _("That browser is logged out. Its open pages and shells end within seconds."))
    return redirect("security")


@require_POST
@login_required
def end_sessions(request: HttpRequest) -> HttpResponse:
    """Log out everywhere else; and here, and the scripts, where that is ticked."""
    user, here, with_tokens = person(request), "here" in request.POST, "tokens" in request.POST
    with transaction.atomic():
        ended, revoked = session_list.end_everywhere(
            user,
            user.username,
            timezone.now(),
            but=None if here else request.session.session_key,
            with_tokens=with_tokens,
        )
    if here:
        return redirect("login")
    said = [_("You are logged out everywhere else.")]
    said.append(ngettext("{n} session ended.", "{n} sessions ended.", ended).format(n=ended))
    if with_tokens:
        said.append(ngettext("{n} token is revoked.", "{n} tokens are revoked.", revoked).format(n=revoked))
    messages.success(request, " ".join(said))
    return redirect("security")
