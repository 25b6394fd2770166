"""The live parts of the pages of projects."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters import live
from jobs.models import Project


def _see_list(user: User, place: Place) -> Seen:
    """The list says which role a person has, also that of an admin who is a member."""
    own = user.pk if user.is_superuser else None
    return Seen(user, (access.rights_key(user), own), ())


def _stamp_of_list(user: User, place: Place) -> str:
    return live.projects_stamp(user)


def _list(user: User, place: Place, rights: Hashable) -> str:
    return live.projects_live(user)


def _see_use(user: User, place: Place) -> Seen:
    project = access.project_or_404(user, "see", place.text("project"))
    return Seen(user, access.verbs(user, project), (f"jobs:{project.name}",))


def _stamp_of_use(user: User, place: Place) -> str:
    return live.project_stamp(user, access.project_or_404(user, "see", place.text("project")))


def _use(user: User, place: Place, rights: Hashable) -> str:
    return live.project_live(user, access.project_or_404(user, "see", place.text("project")))


def _see_sent(user: User, place: Place) -> Seen:
    return Seen(user, access.verbs(user, _managed(user, place)), ())


def _stamp_of_sent(user: User, place: Place) -> str:
    return live.sent_stamp(_managed(user, place))


def _sent(user: User, place: Place, rights: Hashable) -> str:
    return live.sent_live(_managed(user, place))


def _managed(user: User, place: Place) -> Project:
    return access.get_or_404(user, "manage", Project.objects.all(), name=place.text("project"))


def _only(user: User, place: Place) -> Project | None:
    named = dict(place.query).get("project", "")
    return access.project_or_404(user, "see_usage", named) if named else None


def _see_usage(user: User, place: Place) -> Seen:
    _only(user, place)
    return Seen(user, access.rights_key(user), ())


def _stamp_of_usage(user: User, place: Place) -> str:
    return live.usage_stamp(user, dict(place.query))


def _usage(user: User, place: Place, rights: Hashable) -> str:
    return live.usage_live(user, dict(place.query), _only(user, place))


PROJECT = Part("project", _see_use, _stamp_of_use, _use)
PROJECT_LIST = Part("projects", _see_list, _stamp_of_list, _list)
SENT_OF_PROJECT = Part("sent", _see_sent, _stamp_of_sent, _sent)
USAGE = Part("usage", _see_usage, _stamp_of_usage, _usage)
