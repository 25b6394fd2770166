"""Secrets of users: stored ones of a project or a person, and the copies that a job runs with.

`sealed` is encrypted, together with what it belongs to (jobs/secrets/sealed.py). It is never shown again.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agents.models import Location
from jobs.models.jobs import Job
from jobs.models.projects import Project
from jobs.models.runs import Run


class Secret(models.Model):
    """A named secret of one project or of one person."""

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="secrets")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="secrets"
    )
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=20, default="variable", db_default="variable")
    sealed = models.BinaryField()
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)
    used_at = models.DateTimeField(
        null=True, blank=True, help_text="when a job that uses it was submitted last"
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None, user__isnull=False) | Q(project__isnull=False, user=None),
                name="secret_of_one_owner",
            ),
            models.UniqueConstraint(fields=["project", "name"], name="secret_of_project_once"),
            models.UniqueConstraint(fields=["user", "name"], name="secret_of_person_once"),
        ]

    def __str__(self) -> str:
        return self.name


class RegistryCredential(models.Model):
    """The name and the password with which hosts pull images from one registry: for the jobs of one project, or for all
    jobs in one location whose projects have none of their own."""

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    location = models.ForeignKey(Location, null=True, on_delete=models.CASCADE, related_name="+")
    registry = models.CharField(max_length=260, help_text="ghcr.io, or with its port")
    sealed = models.BinaryField()
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["registry"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None, location__isnull=False) | Q(project__isnull=False, location=None),
                name="registry_credential_of_one",
            ),
            models.UniqueConstraint(fields=["project", "registry"], name="registry_of_project_once"),
            models.UniqueConstraint(fields=["location", "registry"], name="registry_of_location_once"),
        ]

    def __str__(self) -> str:
        return self.registry


class JobSecret(models.Model):
    """A secret variable of the replicas of one pool, as it was at submit.

    The row stays with the job. Its value goes when the job is over and the masks of its logs are known.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="secrets")
    pool = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=256, help_text="of the variable")
    sealed = models.BinaryField(null=True, blank=True)

    class Meta:
        ordering = ["job", "pool", "name"]
        indexes = [
            models.Index(fields=["job"], name="job_secret_kept", condition=Q(sealed__isnull=False)),
        ]
        constraints = [models.UniqueConstraint(fields=["job", "pool", "name"], name="job_secret_once")]


class MaskedLog(models.Model):
    """How far the masks of a closed run's log are known: they are searched for while the values are still there."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE, related_name="masked_log")
    masked_to = models.BigIntegerField(default=0)
    ranges = models.PositiveIntegerField(default=0)


class MaskedRange(models.Model):
    """Bytes [start, end) of a log that are shown as `*`, since they are the value of a secret."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="masked_ranges")
    start = models.BigIntegerField()
    end = models.BigIntegerField()

    class Meta:
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="masked_range_once"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="masked_range_not_empty"),
        ]
