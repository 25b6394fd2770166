"""The search over everything that the caller may see."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Query, described, form
from console.api.errors import BadRequest
from console.api.views import TrainyardView, person
from console.presenters import search
from console.presenters.search import Hit


class SearchHit(TypedDict):
    """`path` is the address of its page."""

    kind: str
    name: str
    path: str
    id: NotRequired[str | int]
    state: NotRequired[str]


class SearchHits(TypedDict):
    results: list[SearchHit]


TEXT = Query(
    "q", "A name, an id, a label such as team=nlp.", Annotated[str, form(minLength=1)], required=True
)


class SearchView(TrainyardView):
    """`GET /api/v1/search?q=`: at most five of each kind. `path` is the address of the page."""

    @described("Search everything that you may see, at most five of each kind", SearchHits, query=(TEXT,))
    def get(self, request: Request) -> Response:
        for name in request.query_params:
            if name != "q":
                raise BadRequest(name, f"There is no parameter {name!r}. Known is q.")
        text = request.query_params.get("q", "").strip()
        if not text:
            raise BadRequest("q", "q must say what to look for: a name, an id, a label such as team=nlp.")
        found = search.search(person(request), text)
        return Response(
            {"results": [_result(group.kind, hit) for group in found.groups for hit in group.hits]}
        )


def _result(kind: str, hit: Hit) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": hit.title,
        "path": hit.url,
        **({"id": hit.id} if hit.id else {}),
        **({"state": hit.badge.value} if hit.badge else {}),
    }
