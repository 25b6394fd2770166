"""Saved views of the list of jobs, as links above the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from django.contrib.auth.models import User
from django.urls import reverse

from console import saved_views
from console.auth import access
from console.models import SavedView
from console.presenters.jobs.job_filters import Filters


@dataclass(frozen=True, slots=True)
class ViewLink:
    """`project`: whose view it is; empty for the person's own. `current`: the list shows it now."""

    id: int
    name: str
    project: str
    url: str
    query: str
    made_by: str
    current: bool
    may_remove: bool


@dataclass(frozen=True, slots=True)
class ViewLinks:
    """`query`: what would be kept now, or empty. `projects`: for which the person may keep it."""

    links: tuple[ViewLink, ...]
    query: str
    projects: tuple[str, ...]


def cleaned(query: str) -> str:
    """Only what the list knows, and no place in it."""
    return Filters.of(dict(parse_qsl(query.removeprefix("?")))).unpaged.query()


def view_links(user: User, query: str, views: Sequence[SavedView]) -> ViewLinks:
    """`views`: some of those that the person sees."""
    now, here = cleaned(query), reverse("jobs")
    managed = saved_views.managed(user) if views else set()
    links = (
        ViewLink(
            id=view.pk,
            name=view.name,
            project=view.project.name if view.project else "",
            url=f"{here}?{view.query}",
            query=view.query,
            made_by=view.made_by,
            current=view.query == now,
            may_remove=saved_views.may_remove(user, view, managed),
        )
        for view in views
    )
    projects = access.projects_allowing(user, "submit") if now else []
    return ViewLinks(tuple(links), now, tuple(project.name for project in projects))
