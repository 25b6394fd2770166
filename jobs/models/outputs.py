"""What jobs write below their output directories: on which host it lies, and what of it is stored here."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField
from agents.infra.texts import said
from agents.models import Host, Location
from jobs.models.jobs import Job


class OutputStage(models.TextChoices):
    WRITING = "writing", said("may still be written")
    ENDING = "ending", said("is being stored")
    STORED = "stored", said("is stored")
    KEPT = "kept", said("is stored, but for files that stay on the host")


class HostOutputs(models.Model):
    """The output directories of one job on one host.

    Its files are fetched by whichever worker has claimed the row: `due_at` is ahead and `serial` is its own then.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="host_outputs")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+")
    addresses = models.JSONField(
        default=list, help_text="[[bucket, path]]: what of the storage the host has a copy of"
    )
    stage = models.CharField(max_length=8, choices=OutputStage.choices, default=OutputStage.WRITING)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True, help_text="when a worker looks at it next")
    serial = models.PositiveIntegerField(default=0, help_text="one more with each claim")
    tries = models.PositiveIntegerField(default=0, help_text="how often in a row it could not be done")
    problem = SentenceField(blank=True, help_text="why the last try ended too early")
    pause_s = models.FloatField(default=0, help_text="how long the last pause was, while nothing is new")
    looked_at = models.DateTimeField(null=True, blank=True, help_text="when the host listed its files last")
    left_out = models.JSONField(default=dict, help_text="how many entries there are no files, by kind")

    # What an earlier host stored is put here before the first run starts.
    filled_at = models.DateTimeField(null=True, blank=True, help_text="null: runs wait for it")
    fill_total = models.BigIntegerField(default=0, help_text="bytes")
    fill_done = models.BigIntegerField(default=0)

    moving_path = models.TextField(blank=True, help_text="the file that is coming")
    moving_bytes = models.BigIntegerField(default=0)
    settled_at = models.DateTimeField(null=True, blank=True, help_text="when all that was there was stored")
    dropped_at = models.DateTimeField(null=True, blank=True, help_text="when the host deleted its copy")

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["job", "host"], name="host_outputs_once")]
        indexes = [
            models.Index(fields=["due_at"], name="outputs_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["host"], name="outputs_unfilled", condition=Q(filled_at=None)),
            models.Index(fields=["stage"], name="outputs_open", condition=Q(stage__in=["writing", "ending"])),
        ]


class OutputFile(models.Model):
    """A file below the output directories of a job on one host, as that host listed it last."""

    outputs = models.ForeignKey(HostOutputs, on_delete=models.CASCADE, related_name="files", db_index=False)
    path = models.CharField(max_length=1024, help_text="bucket/name of the object")
    size = models.BigIntegerField()
    mtime_ns = models.BigIntegerField()
    ctime_ns = models.BigIntegerField()
    inode = models.BigIntegerField()
    seen_at = models.DateTimeField(help_text="when it was first listed like this")
    stored_at = models.DateTimeField(null=True, blank=True)
    generation = models.BigIntegerField(default=0, help_text="of the object that it was stored as")
    gone_at = models.DateTimeField(null=True, blank=True, help_text="when the program had deleted it")
    problem = models.CharField(max_length=300, blank=True, help_text="why the host did not give it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["outputs", "path"], name="output_file_once")]
        indexes = [
            models.Index(
                fields=["outputs"], name="output_to_store", condition=Q(stored_at=None, gone_at=None)
            )
        ]


class LocationStorage(models.Model):
    """A directory that all hosts of a location share: of one bucket, or with a directory for each bucket in it."""

    location = models.ForeignKey(Location, on_delete=models.CASCADE, related_name="+")
    bucket = models.CharField(max_length=63, blank=True, help_text="empty: every bucket")
    directory = models.CharField(max_length=500)

    class Meta:
        ordering = ["bucket"]
        constraints = [models.UniqueConstraint(fields=["location", "bucket"], name="location_storage_once")]
