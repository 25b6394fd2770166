"""The page of the search, and its results for the command palette."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from console.auth.person import person
from console.presenters import search as presenter
from console.views.fragments import page_or_fragment

# The element that the palette fills. Its results are options of a listbox, with acts among them.
PALETTE = "palette-found"


@require_safe
@login_required
def search(request: HttpRequest) -> HttpResponse:
    palette = _is_for_palette(request)
    kind = request.GET.get("kind", "")
    found = presenter.search(person(request), request.GET.get("q", ""), acts=palette, kind=kind)
    fragment = "frame/_palette_found.html" if palette else "search/_found.html"
    response = page_or_fragment(request, "search/page.html", fragment, {"found": found})
    patch_vary_headers(response, ["HX-Target"])
    return response


def _is_for_palette(request: HttpRequest) -> bool:
    return request.htmx.target == PALETTE  # type: ignore[attr-defined,no-any-return]  # django-htmx sets it
