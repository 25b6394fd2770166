"""The page on which the first admin creates an account, through the link printed at start."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.auth import sessions
from console.auth import setup as first_admin
from console.auth.session_store import Way
from console.forms.people import Setup


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "POST"])
def setup(request: HttpRequest, token: str) -> HttpResponse:
    if not first_admin.is_open(token):
        return render(request, "people/setup_closed.html", {"needed": first_admin.needed()}, status=404)
    form = Setup(request.POST or None)
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            with transaction.atomic():
                user = first_admin.redeem(token, typed["username"], typed["password"], timezone.now())
        except ValidationError as refused:
            _add_validation_error(form, refused)
        except first_admin.SetupClosed:
            return redirect(request.path)
        else:
            sessions.begin(request, user, timezone.now(), Way.LINK)
            return redirect("welcome")
    return render(request, "people/setup.html", {"form": form})


def _add_validation_error(form: Setup, refused: ValidationError) -> None:
    """Add validation errors to the form. Errors of a name carry their field, errors of a password do not."""
    by_field = getattr(
        refused, "error_dict", {"password": refused.error_list if hasattr(refused, "error_list") else []}
    )
    for field, errors in by_field.items():
        form.add_error(field if field in form.fields else None, errors)
