"""The queue: jobs that people have moved, and when waiting jobs are expected to start."""

from __future__ import annotations

from django.db import models

from jobs.models.jobs import Job


class QueuePin(models.Model):
    """A place that a person gave to a waiting job (scheduling/reorder.py). It ends when the job gets its hosts.

    `whole`: in the whole queue, else among the jobs of its project. `moved`: this job was moved; else it was ahead of
    one that was moved, and keeps its place.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="queue_pin")
    rank = models.FloatField(help_text="from 1: the smaller, the sooner")
    whole = models.BooleanField()
    moved = models.BooleanField()
    by = models.CharField(max_length=150, help_text="the user's name")
    at = models.DateTimeField()


class ExpectedStart(models.Model):
    """When a waiting job would start, as simulated a short while ago (scheduling/expected_starts.py).

    No promise: jobs that come later may go first. A job without a row was not simulated, or its start cannot be known.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="expected_start")
    usual_at = models.DateTimeField(
        null=True, help_text="if jobs run as long as such jobs did lately; null: nothing is known of any"
    )
    limit_at = models.DateTimeField(null=True, help_text="if all jobs run to their limits")
