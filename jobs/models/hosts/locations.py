"""Which projects a location serves (without a row: all), and which images it uses in place of others."""

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


class ImageAlias(models.Model):
    """In this location, images of this name are this image (jobs/rules/spec/image_aliases.py)."""

    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=500, help_text="without tag; or a prefix with * at its end")
    image = models.CharField(max_length=1024, help_text='another image, or "host"')

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["location", "name"], name="image_alias_once")]
