"""The page of a person's own account: tokens for scripts, and the password."""

from __future__ import annotations

from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from console.auth import tokens
from console.auth.person import person
from console.forms.people import NewToken
from console.models import ApiToken


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    return _page(request, person(request))


@never_cache
@require_POST
@login_required
def new_token(request: HttpRequest) -> HttpResponse:
    """Create a token. Only the answer to this POST shows it; a reload creates another token."""
    user, form = person(request), NewToken(request.POST)
    if not form.is_valid():
        return _page(request, user, form=form)
    row, token = tokens.create(user, form.cleaned_data["name"], timezone.now())
    response = _page(request, user, token=token, made=row)
    response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
@login_required
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    user = person(request)
    if not ApiToken.objects.filter(user=user, pk=token_id).exists():
        raise Http404
    if tokens.revoke(user, token_id, timezone.now()):
        messages.success(request, "The token is revoked. Programs that use it are refused from now on.")
    return redirect("account")


@sensitive_post_parameters()
@require_POST
@login_required
def password(request: HttpRequest) -> HttpResponse:
    """Change the password. Other sessions of the person end, because their hash depends on the password."""
    user = person(request)
    form = PasswordChangeForm(user, request.POST)
    if not form.is_valid():
        return _page(request, user, password=form)
    form.save()
    auth.update_session_auth_hash(request, user)
    messages.success(request, "Your password is changed. You are logged out everywhere else.")
    return redirect("account")


def _page(
    request: HttpRequest,
    user: User,
    form: NewToken | None = None,
    password: PasswordChangeForm | None = None,
    **context: object,
) -> HttpResponse:
    password = password or PasswordChangeForm(user)
    password.fields["old_password"].widget.attrs.pop("autofocus", None)  # the page has several forms
    rows = ApiToken.objects.filter(user=user, revoked_at=None)
    forms = {"form": form or NewToken(), "password": password}
    return render(request, "people/account.html", {"tokens": rows, **forms, **context})
