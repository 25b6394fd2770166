"""The rows of a new database: project `default`, location `default`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.apps.registry import Apps

DEFAULT = "default"


def make_first_rows(apps: Apps, now: datetime) -> None:
    """Create the rows that are missing. The models come from `apps`, because a migration has the models of its time."""
    project: Any = apps.get_model("jobs", "Project")
    location: Any = apps.get_model("agents", "Location")
    project.objects.get_or_create(name=DEFAULT, defaults={"title": "Default", "created_at": now})
    location.objects.get_or_create(name=DEFAULT, defaults={"title": "Default"})
