"""The live parts of the pages of studies."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from django.contrib.auth.models import User

from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters.studies import study_parts
from jobs.models import Project, TuningJob


def _see_list(user: User, place: Place) -> Seen:
    projects = access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True)
    return Seen(user, access.jobs_key(user), tuple(f"jobs:{name}" for name in projects))


def _see(user: User, place: Place) -> Seen:
    pk = place.number("tuning_id")
    row = access.get_or_404(user, "see", TuningJob.objects.select_related("project"), pk=pk)
    may_copy = access.can(user, "submit", row.project)
    return Seen(user, (access.verbs(user, row), may_copy), (f"tuning:{pk}",))


def _part(
    name: str,
    stamp: Callable[[int], str],
    render: Callable[[User, Place], str],
    same_at: Callable[[Place], Hashable] | None = None,
) -> Part:
    def stamp_of(user: User, place: Place) -> str:
        return stamp(place.number("tuning_id"))

    def rendered(user: User, place: Place, rights: Hashable) -> str:
        return render(user, place)

    return Part(name, _see, stamp_of, rendered, same_at) if same_at else Part(name, _see, stamp_of, rendered)


def _list_stamp(user: User, place: Place) -> str:
    return study_parts.list_stamp(user, dict(place.query))


def _list(user: User, place: Place, rights: Hashable) -> str:
    return study_parts.list_live(user, dict(place.query))


def _head(user: User, place: Place) -> str:
    return study_parts.head_live(user, place.number("tuning_id"))


def _body(user: User, place: Place) -> str:
    return study_parts.body_live(user, place.number("tuning_id"), dict(place.query))


def _cost(user: User, place: Place) -> str:
    return study_parts.cost_live(user, place.number("tuning_id"), dict(place.query))


def _parameters(user: User, place: Place) -> str:
    return study_parts.parameters_live(user, place.number("tuning_id"), dict(place.query))


def _contour(user: User, place: Place) -> str:
    return study_parts.contour_live(user, place.number("tuning_id"), dict(place.query))


def _curves(user: User, place: Place) -> str:
    return study_parts.curves_live(user, place.number("tuning_id"), dict(place.query))


def _scatter(user: User, place: Place) -> str:
    return study_parts.scatter_live(user, place.number("tuning_id"), dict(place.query))


def _timeline(user: User, place: Place) -> str:
    return study_parts.timeline_live(user, place.number("tuning_id"), dict(place.query))


def _same_study(place: Place) -> Hashable:
    """The head does not depend on what else the address asks for."""
    return place.number("tuning_id")


STUDY_LIST = Part("studies", _see_list, _list_stamp, _list)
STUDY_HEAD = _part("study-head", study_parts.study_stamp, _head, _same_study)
STUDY_BODY = _part("study-body", study_parts.study_stamp, _body)
STUDY_COST = _part("study-cost", study_parts.cost_stamp, _cost)
STUDY_PARAMETERS = _part("study-parameters", study_parts.study_stamp, _parameters)
STUDY_CONTOUR = _part("study-contour", study_parts.contour_stamp, _contour)
STUDY_CURVES = _part("study-curves", study_parts.curves_stamp, _curves)
STUDY_SCATTER = _part("study-scatter", study_parts.study_stamp, _scatter)
STUDY_TIMELINE = _part("study-timeline", study_parts.study_stamp, _timeline)
