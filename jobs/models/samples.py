"""Samples of what runs used: fine for an hour, coarser after that (host_sync/samples.py), so that a long run stays
small. And what their programs reported: a series for each metric of a run, with a few thousand points at most
(jobs/metrics)."""

from __future__ import annotations

from django.db import models

from agents.models import Host, Location
from jobs.models.runs import Run


class RunSample(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples", db_index=False)
    step = models.PositiveIntegerField(help_text="how many seconds it stands for: 10, 60 or 600")
    at = models.DateTimeField(help_text="by our clock")
    cpu = models.FloatField(help_text="cores in use")
    memory_mb = models.PositiveIntegerField(null=True)
    gpus = models.JSONField(
        default=list, help_text="[[percent, MiB], ...] in the order of the run's gpu_uuids"
    )
    disk_free_mb = models.BigIntegerField(null=True)
    # All its GPUs as one (rules/lifecycle/utilization.py): reading the lists of a thousand runs is slow.
    gpu_count = models.PositiveSmallIntegerField(
        null=True, help_text="null: stored by a version that had only the lists"
    )
    gpu_load = models.FloatField(null=True, help_text="percent, the mean")
    gpu_memory_mb = models.BigIntegerField(null=True)
    gpu_watts = models.PositiveIntegerField(null=True)
    gpu_celsius = models.SmallIntegerField(null=True)
    # Older runners report none of what follows. Network and disks are those of the whole host.
    gpu_power = models.JSONField(null=True, help_text="W, in the order of the run's gpu_uuids")
    gpu_temperature = models.JSONField(null=True, help_text="°C, in the order of the run's gpu_uuids")
    net_rx = models.BigIntegerField(null=True, help_text="bytes per second, as are the next three")
    net_tx = models.BigIntegerField(null=True)
    io_read = models.BigIntegerField(null=True)
    io_write = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["run", "at"]
        indexes = [models.Index(fields=["step", "at"], name="sample_to_roll")]
        constraints = [models.UniqueConstraint(fields=["run", "step", "at"], name="sample_once")]


class GpuHour(models.Model):
    """How much of one host's GPUs of one type was held and busy in one hour. Written once, when the hour is over."""

    start = models.DateTimeField()
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="gpu_hours")
    accelerator_type = models.CharField(max_length=63, blank=True)
    held_s = models.FloatField(help_text="GPU-seconds")
    busy = models.FloatField(null=True, help_text="the sum of percents, at some minutes; null: no sample")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["start", "host", "accelerator_type"], name="gpu_hour_once")
        ]


class LocationHour(models.Model):
    """How much of the GPUs of one location was held in one hour. Written once, when the hour is over."""

    start = models.DateTimeField()
    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="hours")
    gpus = models.PositiveIntegerField(help_text="how many there were when it was written")
    held_s = models.FloatField(help_text="GPU-seconds")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["start", "location"], name="location_hour_once"),
        ]


class MetricSeries(models.Model):
    """One metric of one run. Names are the program's: they are text, whatever they look like."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metric_series", db_index=False)
    source = models.CharField(
        max_length=16, help_text="how it was reported: hypertune, file, tensorboard, mlflow, wandb"
    )
    name = models.CharField(max_length=200)
    reports = models.BigIntegerField(default=0, help_text="how many there were")
    points = models.IntegerField(default=0, help_text="how many of them are stored, at least")
    # The newest report; and the extremes of all that are numbers.
    step = models.BigIntegerField()
    value = models.FloatField(null=True)
    odd = models.CharField(
        max_length=9, blank=True, help_text="NaN, Infinity or -Infinity, in place of a value"
    )
    at = models.DateTimeField()
    lowest = models.FloatField(null=True)
    highest = models.FloatField(null=True)

    class Meta:
        ordering = ["run", "name", "source"]
        constraints = [models.UniqueConstraint(fields=["run", "name", "source"], name="metric_series_once")]


class MetricPoint(models.Model):
    """One report. A later one at the same step takes its place."""

    series = models.ForeignKey(MetricSeries, on_delete=models.CASCADE, related_name="rows", db_index=False)
    step = models.BigIntegerField()
    value = models.FloatField(null=True)
    odd = models.CharField(max_length=9, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["series", "step"]
        constraints = [models.UniqueConstraint(fields=["series", "step"], name="metric_point_once")]
