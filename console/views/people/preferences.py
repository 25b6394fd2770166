"""The page on which a person chooses how pages look: theme, language, time zone, keys."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.auth import preferences as store
from console.auth.person import person
from console.forms.preferences import FramePreferences


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def preferences(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if request.method != "POST":
        chosen = store.of(user)
        form = FramePreferences(initial={"time_zone": chosen.time_zone, "single_keys": chosen.single_keys})
        return render(request, "people/preferences.html", {"form": form})
    form = FramePreferences(request.POST)
    if not form.is_valid():
        return render(request, "people/preferences.html", {"form": form})
    typed = form.cleaned_data
    with transaction.atomic():
        store.set_frame(user, typed["time_zone"], typed["single_keys"])
    messages.success(request, _("Your preferences are kept."))
    response = redirect("preferences")
    store.show_frame(response, typed["time_zone"], typed["single_keys"])
    return response
