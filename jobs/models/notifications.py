"""Addresses that are notified of what happens to jobs, and each notification.

Addresses and secrets are stored encrypted (agents/infra/secrets.py).
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField, SentenceRowsField
from agents.infra.texts import said
from jobs.models.jobs import Job
from jobs.models.projects import Project


class Way(models.TextChoices):
    MAIL = "mail", said("E-mail")
    SLACK = "slack", said("Slack or compatible")
    HOOK = "hook", said("Webhook")


class NotificationTarget(models.Model):
    """One address: of a person, for that person's jobs, or of a project, for all of its jobs."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="notification_targets",
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="notification_targets"
    )
    way = models.CharField(max_length=8, choices=Way.choices)
    sealed = models.BinaryField(help_text="{address, secret, link}, encrypted")
    shown = models.CharField(max_length=120, help_text="the part of the address that pages show")
    events = models.JSONField(default=list, help_text="jobs.rules.notifications.EVENTS")
    wait_hours = models.FloatField(default=4.0)
    language = models.CharField(
        max_length=16, blank=True, default="", db_default="", help_text="of its reader; empty: English"
    )
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    # An e-mail address gets nothing until its owner has followed a link or an admin has vouched for it
    # (jobs/notifications/email_opt_in.py).
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    confirmation_digest = models.CharField(
        max_length=64, blank=True, default="", db_default="", db_index=True
    )
    confirmation_sent_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(
        null=True, blank=True, help_text="it did not answer: nothing is sent to it before this"
    )

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None, project__isnull=False) | Q(user__isnull=False, project=None),
                name="notification_target_of_one",
            )
        ]


class Notification(models.Model):
    """One message to one target. It is tried until the receiver takes it or Trainyard gives up; pages show which."""

    target = models.ForeignKey(NotificationTarget, on_delete=models.CASCADE, related_name="notifications")
    key = models.CharField(max_length=120, help_text="what it is about; unique for each target")
    event = models.CharField(max_length=16)
    job = models.ForeignKey(
        Job, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications"
    )
    attempt = models.PositiveIntegerField(default=1)
    text = SentenceRowsField(help_text="{title, text, data}")
    made_at = models.DateTimeField()
    tries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    answer = SentenceField(blank=True, help_text="the last answer of the receiver, word for word")

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["due_at"], name="notification_due", condition=Q(due_at__isnull=False))
        ]
        constraints = [models.UniqueConstraint(fields=["target", "key"], name="notification_once")]
