"""What happened, and who did it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models.jobs import Job
from jobs.models.runs import Run
from jobs.rules.lifecycle.history_kinds import HistoryKind


class Transition(models.Model):
    """History and outbox at once: one row for each change, with cause and actor. Never updated."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    host_at = models.DateTimeField(null=True, blank=True, help_text="by the host's clock, where it told")
    host_offset_s = models.FloatField(
        null=True, blank=True, help_text="how far the host's clock was ahead of ours then"
    )
    kind = models.CharField(
        max_length=16,
        default=HistoryKind.STATE,
        db_default="state",
        help_text="history_kinds.HistoryKind",
    )
    subject = models.CharField(
        max_length=80, help_text="job (its state), a replica's name, or wait, flag, notice (beside the state)"
    )
    run = models.CharField(
        max_length=80, blank=True, default="", db_default="", help_text="the run that it is about"
    )
    wait_reason = models.CharField(
        max_length=24,
        blank=True,
        default="",
        db_default="",
        help_text="of a line that says why the job waits: rules.scheduling.wait_reasons.WaitReason",
    )
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    attempt = models.PositiveIntegerField()
    cause = models.TextField()
    actor = models.CharField(max_length=150)

    class Meta:
        ordering = ["id"]


class ShellSession(models.Model):
    """Who had a shell on which run, from when to when, and why it closed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shells")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    user_name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="when the process that holds it last said so"
    )
    closed_at = models.DateTimeField(null=True, blank=True)
    close_reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-opened_at"]


class Tick(models.Model):
    """When each periodic work was done last; also the claim of who does it now."""

    name = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField()
    serial = models.BigIntegerField(default=0, help_text="how often it was done")
