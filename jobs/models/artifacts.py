"""What projects store: blobs, the objects of buckets, artifacts for jobs, and uploads that are not complete.

A blob is bytes that one project keeps once. Objects, artifacts and jobs point to it; the file is removed when nothing
does (jobs/artifacts/blobs.py). Two projects with the same bytes have two blobs: neither learns of the other's.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job
from jobs.models.projects import Project


class Blob(models.Model):
    """Bytes of a project, by their SHA-256. `key` is the file in the Storage `artifacts`; no two rows share one."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="blobs")
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    crc32c = models.CharField(max_length=8, help_text="base64 of the big-endian value, as Google writes it")
    md5 = models.CharField(max_length=24, blank=True, help_text="base64; only where the sender named it")
    key = models.CharField(max_length=200, unique=True)
    touched_at = models.DateTimeField(help_text="when it was stored, or something last ceased to point to it")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "sha256"], name="blob_once"),
            models.CheckConstraint(condition=Q(size__gte=0), name="blob_size_not_negative"),
        ]
        indexes = [models.Index(fields=["touched_at"], name="blob_touched")]

    def __str__(self) -> str:
        return self.sha256


class Bucket(models.Model):
    """A named set of objects of one project. The name is unique in the deployment, as Google's are everywhere."""

    name = models.CharField(max_length=63, unique=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="buckets")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    keep_days = models.PositiveIntegerField(
        null=True, blank=True, help_text="objects that are older are deleted; null: none is"
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class StoredObject(models.Model):
    """A blob under a name in a bucket: what Google's storage client calls an object.

    `path` is the name in UTF-8. Lists are in the order of these bytes, which is the same in every database.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="stored_objects")
    name = models.CharField(max_length=1024)
    path = models.BinaryField(max_length=1024)
    generation = models.BigIntegerField(help_text="another one each time the bytes are replaced")
    metageneration = models.BigIntegerField(default=1)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="stored_objects")
    content_type = models.CharField(max_length=255, blank=True)
    metadata = models.JSONField(default=dict, help_text="what its writer noted, texts by names")
    headers = models.JSONField(default=dict, help_text="contentEncoding and the like, as Google names them")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "path"], name="object_once")]

    def __str__(self) -> str:
        return f"gs://{self.bucket.name}/{self.name}"


class ArtifactKind(models.TextChoices):
    """What an artifact is for."""

    ARCHIVE = "archive"
    PACKAGE = "package"
    IMAGE = "image"


class Artifact(models.Model):
    """A blob that jobs of the project may bring: an archive of code, a Python package, an archive of an image."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="artifacts")
    sha256 = models.CharField(max_length=64)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="artifacts")
    kind = models.CharField(max_length=16, choices=ArtifactKind.choices)
    name = models.CharField(max_length=255)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "sha256"], name="artifact_once")]
        indexes = [models.Index(fields=["project", "-id"], name="artifact_newest")]

    def __str__(self) -> str:
        return self.name


class BlobHold(models.Model):
    """A job needs the blob: it stays until the job is deleted, whatever happens to objects and artifacts."""

    blob = models.ForeignKey(Blob, on_delete=models.CASCADE, related_name="holds")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="held_blobs")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["blob", "job"], name="blob_held_once")]


class Upload(models.Model):
    """An upload in several requests that goes on where it broke off. Its bytes are in a file of the data directory.

    The address that the client gets has a random key, of which the row has the SHA-256 only.
    """

    key = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the key in the address")
    bucket = models.ForeignKey(Bucket, on_delete=models.CASCADE, related_name="uploads")
    name = models.CharField(max_length=1024)
    content_type = models.CharField(max_length=255, blank=True)
    metadata = models.JSONField(default=dict)
    headers = models.JSONField(default=dict)
    size = models.BigIntegerField(null=True, blank=True, help_text="bytes, if they were announced")
    crc32c = models.CharField(max_length=8, blank=True, help_text="which its bytes must have")
    md5 = models.CharField(max_length=24, blank=True, help_text="which its bytes must have")
    if_generation = models.BigIntegerField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    created_at = models.DateTimeField()
    stored = models.ForeignKey(
        StoredObject, null=True, blank=True, on_delete=models.SET_NULL, help_text="what it has become"
    )

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="upload_age")]


class Reservation(models.Model):
    """What a file that is being received has reserved of the quota of its project, until it is stored or given up."""

    name = models.CharField(max_length=100, unique=True, help_text="of the file in the directory `uploads`")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reservations")
    size = models.BigIntegerField(help_text="bytes")
    until = models.DateTimeField(help_text="who does not go on before has died")


class FileStorage(models.Model):
    """What the files of a project with a quota for them took when the sweep looked last (artifacts/levels.py)."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="file_storage"
    )
    level = models.PositiveSmallIntegerField(
        default=0, help_text="jobs.rules.scheduling.file_storage.LEVELS; 0: below all of them"
    )
