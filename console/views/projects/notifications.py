"""The page of notifications: a person's own, or those of a project together with its idle rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.notifications import Events, IdleRule, NewTarget
from console.presenters.projects import notifications as presenter
from jobs.idle_rule import set_rule
from jobs.models import NotificationTarget, Project
from jobs.notifications import create, delivery, email_opt_in, targets


@dataclass(frozen=True, slots=True)
class NotificationOwner:
    """The person or the project that the notifications belong to."""

    owner: User | Project

    @property
    def project(self) -> Project | None:
        return self.owner if isinstance(self.owner, Project) else None

    @property
    def url(self) -> str:
        return (
            reverse("project-notifications", args=[self.project.name])
            if self.project
            else reverse("notifications")
        )


def owner_of(request: HttpRequest, name: str | None) -> NotificationOwner:
    if name is None:
        return NotificationOwner(person(request))
    return NotificationOwner(access.get_or_404(request.user, "manage", Project.objects.all(), name=name))


def find(request: HttpRequest, target_id: int) -> tuple[NotificationTarget, NotificationOwner]:
    """Return a target that this person may change, or answer 404."""
    row = get_object_or_404(NotificationTarget.objects.select_related("project"), pk=target_id)
    if row.project is not None:
        return row, owner_of(request, row.project.name)
    if row.user_id != person(request).pk:
        raise Http404
    return row, NotificationOwner(person(request))


@require_safe
@login_required
def page(request: HttpRequest, project: str | None = None) -> HttpResponse:
    return _page(request, owner_of(request, project))


@require_safe
@login_required
def log(request: HttpRequest, project: str | None = None) -> HttpResponse:
    """Render the log of sent notifications. The page asks for it again while one is on its way."""
    of = owner_of(request, project)
    return render(request, "notifications/_log.html", {"log": presenter.log(of.owner), "address": of.url})


@never_cache
@sensitive_post_parameters("address")
@require_POST
@login_required
def add(request: HttpRequest, project: str | None = None) -> HttpResponse:
    """Add a target. Only the answer to this POST shows the secret of a webhook."""
    of, form = owner_of(request, project), NewTarget(request.POST)
    if not form.is_valid():
        return _page(request, of, form=form)
    typed = form.cleaned_data
    try:
        with transaction.atomic():
            row, secret = targets.add(
                of.owner,
                typed["way"],
                typed["address"],
                typed["events"],
                typed["wait_hours"],
                person(request).username,
                timezone.now(),
                translation.get_language() or "",
            )
            if row.confirmed_at is None:
                email_opt_in.send_letter(
                    row, request.build_absolute_uri("/"), person(request).username, timezone.now()
                )
    except Refused as refused:
        form.add_error("address", shown(refused.message))
        return _page(request, of, form=form)
    if row.confirmed_at is None:
        messages.success(
            request,
            _("A link was sent to {shown}. Notifications begin once somebody has confirmed it.").format(
                shown=row.shown
            ),
        )
        delivery.send_due(timezone.now())
        return redirect(of.url)
    if not secret:
        messages.success(request, _("{shown} will be notified.").format(shown=row.shown))
        return redirect(of.url)
    response = _page(request, of, secret=secret, made=row)
    response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
@login_required
def change(request: HttpRequest, target_id: int) -> HttpResponse:
    row, of = find(request, target_id)
    form = Events(request.POST, prefix=f"t{row.pk}")
    if not form.is_valid():
        return _page(request, of, changed={row.pk: form})
    typed = form.cleaned_data
    targets.change(row, typed["events"], typed["wait_hours"], person(request).username, timezone.now())
    messages.success(request, _("The events for {shown} are changed.").format(shown=row.shown))
    return redirect(of.url)


@require_POST
@login_required
def test(request: HttpRequest, target_id: int) -> HttpResponse:
    row, of = find(request, target_id)
    return _sent(request, of, lambda now: create.create_test(row, person(request).username, now))


@require_POST
@login_required
def ask(request: HttpRequest, target_id: int) -> HttpResponse:
    """Send the link again. Only the e-mail holds it, because the person who typed the address may not own it."""
    row, of = find(request, target_id)
    here = request.build_absolute_uri("/")
    return _sent(request, of, lambda now: email_opt_in.send_letter(row, here, person(request).username, now))


@require_POST
@login_required
def vouch(request: HttpRequest, target_id: int) -> HttpResponse:
    access.require(request.user, "manage", User)
    row, of = find(request, target_id)
    try:
        email_opt_in.vouch(row, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.success(request, _("{shown} will be notified.").format(shown=row.shown))
    return redirect(of.url)


@never_cache
@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """Ask the owner of an address to confirm. The page needs no login.

    Opening it confirms nothing: programs that scan mail follow links too, but do not send the form.
    """
    now = timezone.now()
    target, answer = email_opt_in.target_of_link(token, now), request.POST.get("answer")
    if target is None:
        return render(request, "notifications/confirm.html", status=404)
    if request.method != "POST" or answer not in ("yes", "no"):
        return render(request, "notifications/confirm.html", {"target": target})
    with transaction.atomic():
        (email_opt_in.accept if answer == "yes" else email_opt_in.refuse)(target, now)
    return render(request, "notifications/confirm.html", {"answer": answer})


@require_POST
@login_required
def remove(request: HttpRequest, target_id: int) -> HttpResponse:
    row, of = find(request, target_id)
    targets.remove(row, person(request).username, timezone.now())
    messages.success(request, _("{shown} is not notified any more.").format(shown=row.shown))
    return redirect(of.url)


@require_POST
@login_required
def idle_rule(request: HttpRequest, project: str) -> HttpResponse:
    of, form = owner_of(request, project), IdleRule(request.POST)
    if not form.is_valid():
        return _page(request, of, idle=form)
    typed = form.cleaned_data
    assert of.project is not None
    set_rule(of.project, typed["minutes"], bool(typed["stops"]), person(request).username, timezone.now())
    messages.success(
        request, _("The idle rule is changed.") if typed["minutes"] else _("There is no idle rule any more.")
    )
    return redirect(of.url)


def _sent(request: HttpRequest, of: NotificationOwner, send: Callable[[datetime], None]) -> HttpResponse:
    """Send at once. The page then shows the progress, or why nothing may be sent."""
    try:
        send(timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect(of.url)
    delivery.send_due(timezone.now())
    return redirect(f"{of.url}#sent")


def _page(
    request: HttpRequest,
    of: NotificationOwner,
    form: NewTarget | None = None,
    changed: dict[int, Events] | None = None,
    idle: IdleRule | None = None,
    **context: object,
) -> HttpResponse:
    if of.project is not None:
        rule = {"minutes": of.project.idle_minutes, "stops": "1" if of.project.idle_stops else ""}
        context["idle"] = idle or IdleRule(initial=rule)
    known = {
        "whose": of,
        "form": form or NewTarget(),
        "targets": presenter.lines(of.owner, changed or {}),
        "log": presenter.log(of.owner),
        "address": of.url,
        "may_vouch": access.can(request.user, "manage", User),
    }
    return render(request, "notifications/page.html", {**known, **context})
