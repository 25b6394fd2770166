"""The live parts of the pages of projects."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from console import presenters
from console.auth import access
from console.parts.part import Part, Place, Seen


def _see_list(user: User, place: Place) -> Seen:
    """The list says which role a person has, also that of an admin who is a member."""
    own = user.pk if user.is_superuser else None
    return Seen(user, (access.rights_key(user), own), ())


def _stamp_of_list(user: User, place: Place) -> str:
    return presenters.projects_stamp(user)


def _list(user: User, place: Place, rights: Hashable) -> str:
    return presenters.projects_live(user)


def _see_use(user: User, place: Place) -> Seen:
    project = access.project_or_404(user, "see", place.text("project"))
    return Seen(user, access.verbs(user, project), (f"jobs:{project.name}",))


def _stamp_of_use(user: User, place: Place) -> str:
    return presenters.project_stamp(user, access.project_or_404(user, "see", place.text("project")))


def _use(user: User, place: Place, rights: Hashable) -> str:
    return presenters.project_live(user, access.project_or_404(user, "see", place.text("project")))


PROJECT = Part("project", _see_use, _stamp_of_use, _use)
PROJECT_LIST = Part("projects", _see_list, _stamp_of_list, _list)
