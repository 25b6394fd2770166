"""Projects, which are the tenants, and their members."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from jobs.rules.scheduling.order import PRIORITIES


class Project(models.Model):
    """A tenant. In REST addresses its id may stand for its name. An archived project takes no jobs."""

    name = models.SlugField(max_length=63, unique=True)
    title = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True, blank=True)
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.01)])

    # The highest priority of its jobs. Admins set it: the order between projects is not for one project to choose.
    highest_priority = models.CharField(
        max_length=8, choices=[(word, word) for word in PRIORITIES], default="normal", db_default="normal"
    )

    # Fair share: what was used, decayed to `share_at` (projects/usage.py folds the usage rows into it).
    share_used = models.FloatField(default=0.0)
    share_at = models.DateTimeField(null=True, blank=True)

    # The idle rule: people are notified of jobs whose GPUs were all at 0 % for so long, or the jobs are cancelled.
    # None: there is no rule.
    idle_minutes = models.PositiveIntegerField(null=True, blank=True)
    idle_stops = models.BooleanField(default=False)

    # Whether what shells show is recorded. None: as the deployment says (TRAINYARD_RECORD_SHELLS).
    record_shells = models.BooleanField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(weight__gt=0), name="project_weight_positive")]

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
