"""Views of the list of jobs that people keep under a name, for themselves or for a project."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F, Q, QuerySet
from django.http import Http404
from django.utils.translation import gettext as _

from agents.infra.refusals import Refused
from console.auth import access
from console.models import SavedView
from jobs.models import Project

MAX_NAME = 60
# Of one person, or of one project.
MAX_VIEWS = 50


def visible(user: User) -> QuerySet[SavedView]:
    """The person's own views, and then those of the projects that they see."""
    projects = access.visible(user, Project.objects.order_by())
    rows = SavedView.objects.filter(Q(user=user) | Q(project__in=projects)).select_related("project")
    return rows.order_by(F("project").asc(nulls_first=True), "name", "pk")


def may_remove(user: User, view: SavedView, managed: set[int]) -> bool:
    """`managed`: the projects that the person manages. A view of a project may also be removed by who has made it."""
    return view.user_id == user.pk or view.project_id in managed or view.made_by == user.username


def managed(user: User) -> set[int]:
    return {project.pk for project in access.projects_allowing(user, "manage")}


def save(user: User, project: Project | None, name: str, query: str, now: datetime) -> SavedView:
    """Keep a view. One of the same name is replaced: of a project only by who may remove it."""
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME:
        raise Refused("name", _("Give the view a name of at most 60 characters."))
    if not query:
        raise Refused("query", _("This is the whole list. Filter or sort it first, then keep it as a view."))
    _require(user, project)
    owner = {"project": project} if project is not None else {"user": user}
    before = SavedView.objects.filter(**owner, name=name).first()
    if before is not None and not may_remove(user, before, managed(user)):
        raise Refused(
            "name", _("The project has a view of this name, which {who} has made.").format(who=before.made_by)
        )
    if before is None and SavedView.objects.filter(**owner).count() >= MAX_VIEWS:
        raise Refused("name", _("There are 50 views already. Remove one first."))
    changes = {"query": query, "made_by": user.username, "made_at": now}
    return SavedView.objects.update_or_create(**owner, name=name, defaults=changes)[0]


def remove(user: User, pk: int) -> SavedView:
    view = visible(user).filter(pk=pk).first()
    if view is None:
        raise Http404
    if not may_remove(user, view, managed(user)):
        raise PermissionDenied
    _require(user, view.project)
    view.delete()
    return view


def _require(user: User, project: Project | None) -> None:
    """Raises PermissionDenied where the person, or their token, may change no views of the project, or of their own."""
    if project is None:
        access.require_account(user, change=True)
    else:
        access.require(user, "submit", project)
