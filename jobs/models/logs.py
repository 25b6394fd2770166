"""The log store: pieces in rows, segments in files, and gaps, which are shown."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from jobs.models.runs import Run


class LogPiece(models.Model):
    """Bytes [start, end) at the live end of a log, as they came from the host. Compressed if `z`."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="pieces")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    z = models.BooleanField()
    data = models.BinaryField()
    at = models.JSONField(default=list, help_text="[[offset, wall seconds], ...]")
    wall = models.FloatField(null=True, help_text="the first of these times")

    class Meta:
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="piece_once"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="piece_not_empty"),
        ]


class LogSegment(models.Model):
    """Pieces rolled into one file of the Storage. `index` is [[start, end, file offset, length, z, marks], ...]."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="segments")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    key = models.CharField(max_length=300)
    index = models.JSONField()
    wall = models.FloatField(null=True, help_text="when its first bytes were printed")
    lines = models.IntegerField(null=True, help_text="how many line feeds it has; null: not counted yet")

    class Meta:
        ordering = ["run", "start"]
        constraints = [models.UniqueConstraint(fields=["run", "start"], name="segment_once")]


class LogGap(models.Model):
    """A range of a log that is missing, and why. Readers always see it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gaps")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    reason = models.TextField()

    class Meta:
        ordering = ["run", "start"]
        constraints = [models.UniqueConstraint(fields=["run", "start"], name="gap_once")]
