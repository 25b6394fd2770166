"""Which projects a location serves. A location without a row serves all projects."""

from __future__ import annotations

from django.db import models

from agents.models import Location
from jobs.models.projects import Project


class LocationBinding(models.Model):
    """This location serves this project; and no project without such a row."""

    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="bindings")
    # PROTECT: without its last row the location would serve all.
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="bindings")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["location", "project"], name="location_binding_once")]
