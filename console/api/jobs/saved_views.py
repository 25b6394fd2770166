"""Saved views of the list of jobs."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console import saved_views
from console.api.description import ACCOUNT, Id, Nothing, Time, described
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, account, person
from console.auth import access
from console.models import SavedView
from console.presenters.view_links import cleaned


class SavedViewDocument(TypedDict):
    """`query`: of the address of the list of jobs. `project`: everybody there sees the view."""

    id: Id
    name: str
    query: str
    project: NotRequired[str]
    madeBy: str
    createTime: Time


class SavedViews(TypedDict):
    savedViews: list[SavedViewDocument]


class NewView(TypedDict):
    name: str
    query: str
    project: NotRequired[str]


class SavedViewsView(TrainyardView):
    """`GET` and `POST /api/v1/savedViews`: `{"name": …, "query": "state=active&sort=-gpus", "project": …}`."""

    @described("List saved views of the list of jobs", SavedViews, needs=ACCOUNT)
    def get(self, request: Request) -> Response:
        return Response({"savedViews": [_resource(view) for view in saved_views.visible(account(request))]})

    @described(
        "Save a view of the list of jobs, for yourself or for a project",
        SavedViewDocument,
        needs="submit",
        body=NewView,
    )
    def post(self, request: Request) -> Response:
        user, body = person(request), RequestBody(request, NewView)
        name, asked, named = body.text("name"), body.text("query"), body.text("project", "")
        query = cleaned(asked)
        if asked and not query:
            raise BadRequest(
                "query", "query must be that of an address of the list: state=active&sort=-gpus."
            )
        project = access.project_or_404(user, "submit", named) if named else None
        with transaction.atomic():
            view = saved_views.save(user, project, name, query, timezone.now())
        return Response(_resource(view))


class SavedViewView(TrainyardView):
    """`DELETE /api/v1/savedViews/{id}`."""

    @described("Remove a saved view", Nothing, needs="submit")
    def delete(self, request: Request, view_id: str) -> Response:
        with transaction.atomic():
            saved_views.remove(person(request), int(view_id))
        return Response({})


def _resource(view: SavedView) -> dict[str, Any]:
    return {
        "id": str(view.pk),
        "name": view.name,
        "query": view.query,
        **({"project": view.project.name} if view.project else {}),
        "madeBy": view.made_by,
        "createTime": format_time(view.made_at),
    }
