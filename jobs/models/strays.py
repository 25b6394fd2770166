"""What hosts run and no row of ours explains."""

from __future__ import annotations

from django.db import models

from agents.models import Host


class Stray(models.Model):
    """A run that a host has and the database does not: what it did was lost with a restored backup."""

    run = models.CharField(max_length=80)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="strays")
    phase = models.CharField(max_length=16, help_text="as the host last told")
    started_at = models.DateTimeField(null=True, blank=True, help_text="by the host's clock")
    found_at = models.DateTimeField()
    stop_wanted_at = models.DateTimeField(null=True, blank=True)
    stop_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["host__name", "run"]
        constraints = [models.UniqueConstraint(fields=["host", "run"], name="stray_once")]
