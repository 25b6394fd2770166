"""Machine types that admins define. Google's types are in rules/spec/machine_types.py."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.models import Location


class MachineType(models.Model):
    """A named size of a replica, for one location or (without one) for all. A job keeps the numbers of its submit."""

    name = models.CharField(max_length=63)
    location = models.ForeignKey(
        Location, null=True, blank=True, on_delete=models.CASCADE, related_name="machine_types"
    )
    cpus = models.FloatField()
    memory_mb = models.PositiveIntegerField(
        help_text="nominal; machine_types.allocatable_mb says what a job gets"
    )
    accelerator_type = models.CharField(max_length=63, blank=True)
    accelerator_count = models.PositiveIntegerField(default=0)
    note = models.CharField(max_length=200, blank=True)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["name", "location__name"]
        constraints = [
            models.UniqueConstraint(
                fields=["name", "location"], condition=~Q(location=None), name="machine_type_once"
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(location=None), name="machine_type_everywhere_once"
            ),
        ]

    def __str__(self) -> str:
        return self.name
