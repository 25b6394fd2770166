"""The page on which a person chooses how pages look: theme, language, time zone, keys."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.auth import preferences as store
from console.auth.person import person
from console.forms.preferences import FramePreferences
from jobs.models.notifications import Way


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def preferences(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if request.method != "POST":
        chosen = store.of(user)
        form = FramePreferences(
            initial={
                "time_zone": chosen.time_zone,
                "single_keys": chosen.single_keys,
                "digest": chosen.digest,
            }
        )
        return _page(request, form)
    form = FramePreferences(request.POST)
    if not form.is_valid():
        return _page(request, form)
    typed = form.cleaned_data
    with transaction.atomic():
        store.set_frame(user, typed["time_zone"], typed["single_keys"])
        store.set_digest(user, typed["digest"], timezone.now())
    messages.success(request, _("Your preferences are kept."))
    response = redirect("preferences")
    store.show_frame(response, typed["time_zone"], typed["single_keys"])
    return response


def _page(request: HttpRequest, form: FramePreferences) -> HttpResponse:
    addresses = person(request).notification_targets.filter(way=Way.MAIL, confirmed_at__isnull=False)
    return render(request, "people/preferences.html", {"form": form, "has_mail": addresses.exists()})
