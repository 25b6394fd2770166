"""Strays: runs that a host has and the database does not."""

from __future__ import annotations

from django.db import models

from agents.models import Host


class Proof(models.TextChoices):
    SEALED = "sealed", "Started by this deployment"
    UNSEALED = "unsealed", "Without a seal"
    FALSE = "false", "With a false seal"


class Stray(models.Model):
    """A run that a host has and the database does not. If it has our seal, a restored backup has lost its rows."""

    run = models.CharField(max_length=80)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="strays")
    phase = models.CharField(max_length=16, help_text="as the host last reported")
    started_at = models.DateTimeField(null=True, blank=True, help_text="by the host's clock")
    found_at = models.DateTimeField()
    proof = models.CharField(max_length=10, choices=Proof, default=Proof.SEALED, db_default=Proof.SEALED)
    # What it holds there, as the host reported. Counted while it has our seal and is not closed.
    cpus = models.FloatField(default=0, db_default=0)
    memory_mb = models.PositiveIntegerField(default=0, db_default=0)
    gpu_uuids = models.JSONField(default=list, db_default=[])
    port = models.PositiveIntegerField(null=True, blank=True)
    stop_wanted_at = models.DateTimeField(null=True, blank=True)
    stop_by = models.CharField(max_length=150, blank=True)
    dismissed_at = models.DateTimeField(null=True, blank=True)
    dismissed_by = models.CharField(max_length=150, blank=True, db_default="")

    class Meta:
        ordering = ["host__name", "run"]
        constraints = [models.UniqueConstraint(fields=["host", "run"], name="stray_once")]
