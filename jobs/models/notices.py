"""Who is told what happened to jobs, and each telling. Addresses and secrets are stored sealed (sealed.py)."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job
from jobs.models.projects import Project


class Way(models.TextChoices):
    MAIL = "mail", "E-mail"
    SLACK = "slack", "Slack or compatible"
    HOOK = "hook", "Webhook"


class NoticeTarget(models.Model):
    """One address: a person's, for the jobs of that person, or a project's, for all of its jobs."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="notice_targets",
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="notice_targets"
    )
    way = models.CharField(max_length=8, choices=Way.choices)
    sealed = models.BinaryField(help_text="{address, secret, link}, encrypted")
    shown = models.CharField(max_length=120, help_text="as much of the address as is ever shown again")
    events = models.JSONField(default=list, help_text="rules.notices.EVENTS")
    wait_hours = models.FloatField(default=4.0)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    # An e-mail address is somebody else's until its owner has followed a link, or an admin knows better (proofs.py).
    proved_at = models.DateTimeField(null=True, blank=True)
    proved_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    proof_digest = models.CharField(max_length=64, blank=True, default="", db_default="", db_index=True)
    proof_asked_at = models.DateTimeField(null=True, blank=True)
    rest_until = models.DateTimeField(
        null=True, blank=True, help_text="it did not answer; others of it wait too"
    )

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None, project__isnull=False) | Q(user__isnull=False, project=None),
                name="notice_target_of_one",
            )
        ]


class Notice(models.Model):
    """Something that one target is told: tried until it was taken, or given up, which shows."""

    target = models.ForeignKey(NoticeTarget, on_delete=models.CASCADE, related_name="notices")
    key = models.CharField(max_length=120, help_text="what it is about: told once to each target")
    event = models.CharField(max_length=16)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="notices")
    attempt = models.PositiveIntegerField(default=1)
    text = models.JSONField(help_text="{title, text, data}")
    made_at = models.DateTimeField()
    tries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    answer = models.TextField(blank=True, help_text="the last one, word for word")

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["due_at"], name="notice_due", condition=Q(due_at__isnull=False))]
        constraints = [models.UniqueConstraint(fields=["target", "key"], name="notice_once")]
