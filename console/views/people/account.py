"""The page of a person's own account: tokens for scripts, and the password."""

from __future__ import annotations

from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import accounts, tokens
from console.auth.login import passwords
from console.auth.person import person
from console.auth.scopes import Grant, Scope
from console.forms.people import ChangePassword, NewToken
from console.models import ApiToken
from console.presenters.people import tokens as token_list
from console.views.confirmation import asked_again


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    return _page(request, person(request))


@never_cache
@require_POST
@login_required
def new_token(request: HttpRequest) -> HttpResponse:
    """Create a token. Only the answer to this POST shows it; a reload creates another token."""
    user = person(request)
    form = NewToken(user, request.POST)
    if not form.is_valid():
        return _page(request, user, form=form)
    if page := asked_again(request, _("make a token")):
        return page
    typed = form.cleaned_data
    days, project = typed["days"] or tokens.DEFAULT_DAYS, typed["project"]
    grant = Grant(Scope(typed["scope"] or Scope.ADMIN), project.pk if project else None)
    try:
        with transaction.atomic():
            row, token = tokens.create(
                user, typed["name"], timezone.now(), days=days, elevated=typed["elevated"], grant=grant
            )
    except Refused as refused:
        form.add_error(refused.field, shown(refused.message))
        return _page(request, user, form=form)
    response = _page(request, user, token=token, made=row)
    response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
@login_required
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    user = person(request)
    if not ApiToken.objects.filter(user=user, pk=token_id).exists():
        raise Http404
    with transaction.atomic():
        revoked = tokens.revoke(user, token_id, timezone.now())
    if revoked:
        messages.success(request, _("The token is revoked. Programs that use it are refused from now on."))
    return redirect("account")


@sensitive_post_parameters()
@require_POST
@login_required
def password(request: HttpRequest) -> HttpResponse:
    """Change the password. Other sessions of the person end, and all tokens are revoked."""
    user, form, now = person(request), ChangePassword(request.POST), timezone.now()
    if not form.is_valid():
        return _page(request, user, password=form)
    typed = form.cleaned_data
    try:
        passwords.confirm(request, typed["old_password"], now)
        with transaction.atomic():
            revoked = accounts.set_password(
                user, typed["new_password1"], user.username, now, session=request.session.session_key
            )
    except Refused as refused:
        form.add_error("old_password", shown(refused.message))
        return _page(request, user, password=form)
    except ValidationError as refused:
        form.add_error("new_password1", refused)
        return _page(request, user, password=form)
    auth.update_session_auth_hash(request, user)
    said = [_("Your password is changed. You are logged out everywhere else.")]
    if revoked == 1:
        said.append(_("Your token is revoked."))
    elif revoked:
        said.append(_("Your {number} tokens are revoked.").format(number=revoked))
    messages.success(request, " ".join(said))
    return redirect("account")


def _page(
    request: HttpRequest,
    user: User,
    form: NewToken | None = None,
    password: ChangePassword | None = None,
    **context: object,
) -> HttpResponse:
    now = timezone.now()
    forms = {"form": form or NewToken(user), "password": password or ChangePassword()}
    return render(request, "people/account.html", {**token_list.context(user, now), **forms, **context})
