"""Quotas: limits of a project, of each of its members, of one member; the limits that a new project begins with; and
what the logs of a project take, where they are limited."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.projects import Project
from jobs.rules.scheduling.quota import Metric


class Limit(models.Model):
    """A limit on one metric. Without a row there is no limit."""

    metric = models.CharField(max_length=16, choices=[(m.value, m.value) for m in Metric])
    accelerator_type = models.CharField(max_length=63, blank=True, help_text="for GPUs only")
    each = models.BooleanField(default=False, help_text="for each member, not for the project as a whole")
    value = models.FloatField()

    class Meta:
        abstract = True


class Quota(Limit):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="quotas")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="quotas",
        help_text="for this member alone; it replaces the limit for each",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "each", "metric", "accelerator_type"],
                condition=Q(user=None),
                name="quota_once",
            ),
            models.UniqueConstraint(
                fields=["project", "user", "metric", "accelerator_type"],
                condition=~Q(user=None),
                name="quota_of_member_once",
            ),
            models.CheckConstraint(condition=Q(value__gte=0), name="quota_not_negative"),
            models.CheckConstraint(condition=Q(each=False) | Q(user=None), name="quota_of_one_or_each"),
        ]


class DefaultQuota(Limit):
    """A limit that a new project begins with. Changing it changes no existing project."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["each", "metric", "accelerator_type"], name="default_quota_once"),
            models.CheckConstraint(condition=Q(value__gte=0), name="default_quota_not_negative"),
        ]


class LogStorage(models.Model):
    """What the logs of a project with a limit on them took when the sweep looked last (projects/log_storage.py)."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="log_storage"
    )
    stored = models.BigIntegerField(help_text="bytes")
    limit_gb = models.FloatField()
    level = models.PositiveSmallIntegerField(
        default=0, help_text="jobs.rules.scheduling.log_storage.LEVELS; 0: below all of them"
    )
    level_at = models.DateTimeField()
