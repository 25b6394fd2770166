"""The queue: when waiting jobs are expected to start."""

from __future__ import annotations

from django.db import models

from jobs.models.jobs import Job


class ExpectedStart(models.Model):
    """When a waiting job would start, as simulated a short while ago (scheduling/expected_starts.py).

    No promise: jobs that come later may go first. A job without a row was not simulated, or its start cannot be known.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="expected_start")
    usual_at = models.DateTimeField(
        null=True, help_text="if jobs run as long as such jobs did lately; null: nothing is known of any"
    )
    limit_at = models.DateTimeField(null=True, help_text="if all jobs run to their limits")
