"""Saved views of the list of jobs, as links above the list."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from django.contrib.auth.models import User
from django.urls import reverse

from console import saved_views
from console.auth import access
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


def view_links(user: User, query: str, most: int | None = None) -> ViewLinks:
    """All of them, or the first `most`: the person's own come first."""
    now, here = cleaned(query), reverse("jobs")
    views = list(saved_views.visible(user)[:most])
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
