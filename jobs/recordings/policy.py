"""Whether shells are recorded: what the deployment says, unless it was decided for the project."""

from __future__ import annotations

from django.conf import settings

from jobs.models import Project


def is_recorded(project: Project) -> bool:
    """Whether a shell that opens now in a job of this project is recorded."""
    return usual() if project.record_shells is None else project.record_shells


def usual() -> bool:
    """What holds where nothing was decided for the project."""
    return settings.TRAINYARD.record_shells


def kept_days() -> int:
    return settings.TRAINYARD.shell_recording_days
