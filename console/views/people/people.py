"""Pages for admins: people, invitations and the audit. Also the page on which an invited person sets a password."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import access, accounts, session_list
from console.auth.login import confirmation, login_steps
from console.auth.person import person
from console.auth.session_store import Way
from console.forms.people import NewPassword, NewPerson
from console.presenters.projects import audit as audit_log
from console.presenters.projects import audit_export
from console.presenters.projects import people as presenter
from console.views.confirmation import asked_again, refusal
from console.views.fragments import page_or_fragment
from jobs.models import AuditEntry


@require_safe
@login_required
def people(request: HttpRequest) -> HttpResponse:
    _only_admins(request)
    return _page(request)


@sensitive_post_parameters("password", "confirm_password")
@never_cache
@require_POST
@login_required
def add(request: HttpRequest) -> HttpResponse:
    _only_admins(request)
    form = NewPerson(request.POST)
    if not form.is_valid():
        return _page(request, form=form)
    typed, who, now = form.cleaned_data, person(request).username, timezone.now()
    if typed["admin"] and (problem := refusal(request, typed["confirm_password"])):
        form.add_error("confirm_password", problem)
        return _page(request, form=form)
    token = ""
    try:
        with transaction.atomic():
            user = accounts.add(
                typed["username"],
                admin=typed["admin"],
                actor=who,
                now=now,
                password=typed["password"] or None,
                member=typed["member"],
            )
            if not typed["password"]:
                token = accounts.invite(user, who, now)
    except ValidationError as refused:
        add_validation_error(form, refused)
        return _page(request, form=form)
    return (
        _invited(request, user, token)
        if token
        else _done(request, _("{user} is added.").format(user=user.username))
    )


@never_cache
@require_POST
@login_required
def invite(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _one(request, user_id)
    if not user.is_active:
        messages.error(
            request, _("{username} is disabled. Enable the account first.").format(username=user.username)
        )
        return redirect("people")
    if page := asked_again(request, _("make a login link for {user}").format(user=user.username)):
        return page
    with transaction.atomic():
        token = accounts.invite(user, person(request).username, timezone.now())
    return _invited(request, user, token)


@require_POST
@login_required
def disable(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _one(request, user_id)
    try:
        with transaction.atomic():
            accounts.disable(user, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("people")
    text = _("{user} is disabled. Their jobs go on. Cancel those that should not.")
    return _done(request, text.format(user=user.username))


@require_POST
@login_required
def enable(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _one(request, user_id)
    with transaction.atomic():
        accounts.enable(user, person(request).username, timezone.now())
    text = _("{user} may log in again. Earlier logins and revoked tokens stay ended.")
    return _done(request, text.format(user=user.username))


@require_POST
@login_required
def delete(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _one(request, user_id)
    try:
        with transaction.atomic():
            accounts.delete(user, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("people")
    return _done(
        request, _("{user} is deleted. Jobs and histories keep the name.").format(user=user.username)
    )


@require_POST
@login_required
def set_admin(request: HttpRequest, user_id: int) -> HttpResponse:
    user, admin = _one(request, user_id), request.POST.get("admin") == "1"
    if admin and (page := asked_again(request, _("make {user} an admin").format(user=user.username))):
        return page
    try:
        with transaction.atomic():
            accounts.set_admin(user, admin, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("people")
    text = _("{user} is an admin now.") if admin else _("{user} is no admin any more.")
    return _done(request, text.format(user=user.username))


@require_POST
@login_required
def reset_second_factor(request: HttpRequest, user_id: int) -> HttpResponse:
    """For a person who has lost the phone and the recovery codes: the next login asks for the password only."""
    user = _one(request, user_id)
    act = _("take the second factor of {user} away").format(user=user.username)
    if page := asked_again(request, act):
        return page
    if not login_steps.reset(user, person(request).username, timezone.now()):
        return _done(request, _("{user} has no second factor.").format(user=user.username))
    return _done(request, _("{user} logs in without a second factor now.").format(user=user.username))


@require_POST
@login_required
def end_sessions(request: HttpRequest, user_id: int) -> HttpResponse:
    """Log a person out everywhere: all browsers, all tokens."""
    user = _one(request, user_id)
    with transaction.atomic():
        ended, revoked = session_list.end_everywhere(
            user, person(request).username, timezone.now(), with_tokens=True
        )
    text = _("{user} is logged out everywhere: {sessions} sessions ended, {tokens} tokens are revoked.")
    return _done(request, text.format(user=user.username, sessions=ended, tokens=revoked))


@require_safe
@login_required
def audit(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "see", AuditEntry)
    page = audit_log.page(person(request), request.GET.dict())
    return page_or_fragment(request, "admin/audit.html", "admin/_audit_page.html", {"page": page})


@require_safe
@login_required
def export_audit(request: HttpRequest) -> HttpResponseBase:
    """What the filters of the page match, all pages of it, as a file."""
    access.require(request.user, "see", AuditEntry)
    form = request.GET.get("format", "csv")
    rows = audit_log.found(person(request), request.GET.dict())
    return audit_export.response(rows, form if form in audit_export.FORMATS else "csv")


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "POST"])
def invited(request: HttpRequest, token: str) -> HttpResponse:
    """Let the person set a password. The page needs no login: the link identifies the person until it is used."""
    user = accounts.invited_user(token, timezone.now())
    if user is None:
        return render(request, "people/invited_closed.html", status=404)
    form = NewPassword(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic():
                accounts.accept(user, token, form.cleaned_data["password"], timezone.now())
        except ValidationError as refused:
            add_validation_error(form, refused)
        except Refused:
            return redirect(request.path)
        else:
            return redirect(login_steps.begin(request, user, timezone.now(), Way.LINK) or "login")
    return render(request, "people/invited.html", {"form": form, "invited": user})


def add_validation_error(form: NewPerson | NewPassword, refused: ValidationError) -> None:
    """Add validation errors to the form. Errors of a name carry their field, errors of a password do not."""
    by_field = refused.error_dict if hasattr(refused, "error_dict") else {"password": refused.error_list}
    for field, errors in by_field.items():
        form.add_error(field if field in form.fields else None, errors)


def _only_admins(request: HttpRequest) -> None:
    access.require(request.user, "manage", User)


def _one(request: HttpRequest, user_id: int) -> User:
    _only_admins(request)
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise Http404
    return user


def _done(request: HttpRequest, words: str) -> HttpResponse:
    messages.success(request, words)
    return redirect("people")


def _invited(request: HttpRequest, user: User, token: str) -> HttpResponse:
    """Show the new link. Only the answer to this POST shows it; a reload creates another link."""
    path = reverse("invited", args=[token])
    link = settings.TRAINYARD.url + path if settings.TRAINYARD.url else request.build_absolute_uri(path)
    response = _page(request, link=link, linked=user, days=accounts.INVITED_FOR.days)
    response.headers["Cache-Control"] = "no-store"
    return response


def _page(request: HttpRequest, form: NewPerson | None = None, **context: object) -> HttpResponse:
    return render(
        request,
        "admin/people.html",
        {
            "people": presenter.page(request.GET.dict()),
            "form": form or NewPerson(),
            "confirmed": confirmation.is_fresh(request.session, timezone.now()),
            **context,
        },
    )
