"""Usage: a row for each run that has released its claims, and sums of these rows by month."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from jobs.models.jobs import Job
from jobs.models.projects import Project
from jobs.models.runs import Run


class Usage(models.Model):
    """From when to when a run held which GPUs and CPUs. Written with the release of its claim, once."""

    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="usage")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="usage")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="usage")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    owner_name = models.CharField(max_length=150)
    accelerator_type = models.CharField(max_length=63, blank=True)
    gpus = models.PositiveIntegerField()
    cpus = models.FloatField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    folded = models.BooleanField(
        default=False, help_text="it is in the sums of its months and in the project's share"
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["ended_at"], name="usage_by_end"),
            models.Index(fields=["id"], name="usage_unfolded", condition=Q(folded=False)),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(ended_at__gte=F("began_at")), name="usage_forward"),
        ]


class MonthlyUse(models.Model):
    """The sum of folded usage rows in one month (UTC), split at its borders."""

    month = models.DateField(help_text="its first day")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="monthly_use")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    owner_name = models.CharField(max_length=150)
    accelerator_type = models.CharField(max_length=63, blank=True)
    gpu_seconds = models.FloatField(default=0.0)
    cpu_seconds = models.FloatField(default=0.0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["month", "project", "owner_name", "accelerator_type"], name="monthly_use_once"
            )
        ]
