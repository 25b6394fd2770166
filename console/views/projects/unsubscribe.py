"""The page behind the link in e-mails that stops them. It needs no login: the link in the letter is the right."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from jobs.notifications import email_opt_in
from jobs.notifications import unsubscribe as links


@never_cache
@csrf_exempt
@require_http_methods(["GET", "POST"])
def unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    """Stop the letters to an address.

    Opening the page stops nothing: programs that scan mail follow links too. A mail program sends `List-Unsubscribe` by
    itself (RFC 8058); it has neither the page nor its cookies, so no token of a form is asked for. Whoever can make a
    browser send this knows the link, and could send it without the browser.
    """
    if not links.is_ours(token):
        return render(request, "notifications/unsubscribe.html", {"unknown": True}, status=404)
    target = links.target_of(token)
    asked = request.method == "POST" and request.POST.get("List-Unsubscribe") == "One-Click"
    if target is not None and asked:
        with transaction.atomic():
            email_opt_in.refuse(target, timezone.now())
        target = None
    return render(request, "notifications/unsubscribe.html", {"target": target})
