"""What the admins want of a host. A host without a row is open: it takes jobs, and nothing has to leave it."""

from __future__ import annotations

from django.db import models

from agents.models import Host


class HostMaintenance(models.Model):
    """A drained host is cordoned too. A host that was declared gone takes nothing, even when it answers again, until
    it has proved that none of the runs that were given up there lives."""

    host = models.OneToOneField(Host, on_delete=models.CASCADE, primary_key=True, related_name="maintenance")
    cordoned = models.BooleanField(default=False)
    cordoned_at = models.DateTimeField(null=True, blank=True)
    cordoned_by = models.CharField(max_length=150, blank=True)
    cordon_message = models.CharField(max_length=500, blank=True)
    drain_at = models.DateTimeField(null=True, blank=True, help_text="since when its replicas are to leave")
    drain_until = models.DateTimeField(null=True, blank=True)
    drain_force = models.BooleanField(
        default=False, help_text="the jobs that still run there at drain_until are queued again"
    )
    drain_runs = models.PositiveIntegerField(default=0, help_text="how many runs it had at drain_at")
    drained_at = models.DateTimeField(null=True, blank=True, help_text="when the last run had left it")
    gone_at = models.DateTimeField(null=True, blank=True, help_text="when an admin declared it gone")
    gone_by = models.CharField(max_length=150, blank=True)
