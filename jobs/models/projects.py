"""Who: tenants and their members."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Project(models.Model):
    """The tenant."""

    name = models.SlugField(max_length=63, unique=True)
    title = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="membership_once")]
