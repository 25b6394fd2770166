"""What projects store: blobs, buckets with objects, artifacts for jobs, uploads; and a quota of GB for it."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0028_location_hours"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name="defaultquota",
            name="metric",
            field=models.CharField(
                choices=[
                    ("gpus", "gpus"),
                    ("running", "running"),
                    ("queued", "queued"),
                    ("gpu_hours", "gpu_hours"),
                    ("log_gb", "log_gb"),
                    ("storage_gb", "storage_gb"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="quota",
            name="metric",
            field=models.CharField(
                choices=[
                    ("gpus", "gpus"),
                    ("running", "running"),
                    ("queued", "queued"),
                    ("gpu_hours", "gpu_hours"),
                    ("log_gb", "log_gb"),
                    ("storage_gb", "storage_gb"),
                ],
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="Blob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.BigIntegerField()),
                (
                    "crc32c",
                    models.CharField(
                        help_text="base64 of the big-endian value, as Google writes it", max_length=8
                    ),
                ),
                (
                    "md5",
                    models.CharField(
                        blank=True, help_text="base64; only where the sender named it", max_length=24
                    ),
                ),
                ("key", models.CharField(max_length=200, unique=True)),
                (
                    "touched_at",
                    models.DateTimeField(
                        help_text="when it was stored, or something last ceased to point to it"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="blobs", to="jobs.project"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Artifact",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[("archive", "Archive"), ("package", "Package"), ("image", "Image")],
                        max_length=16,
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="artifacts",
                        to="jobs.project",
                    ),
                ),
                (
                    "blob",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="artifacts", to="jobs.blob"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="BlobHold",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "blob",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="holds", to="jobs.blob"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="held_blobs", to="jobs.job"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Bucket",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=63, unique=True)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="buckets", to="jobs.project"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="StoredObject",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=1024)),
                ("path", models.BinaryField(max_length=1024)),
                (
                    "generation",
                    models.BigIntegerField(help_text="another one each time the bytes are replaced"),
                ),
                ("metageneration", models.BigIntegerField(default=1)),
                ("content_type", models.CharField(blank=True, max_length=255)),
                (
                    "metadata",
                    models.JSONField(default=dict, help_text="what its writer noted, texts by names"),
                ),
                (
                    "headers",
                    models.JSONField(
                        default=dict, help_text="contentEncoding and the like, as Google names them"
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                (
                    "blob",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="stored_objects",
                        to="jobs.blob",
                    ),
                ),
                (
                    "bucket",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="stored_objects",
                        to="jobs.bucket",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Upload",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        help_text="SHA-256 of the key in the address", max_length=64, unique=True
                    ),
                ),
                ("name", models.CharField(max_length=1024)),
                ("content_type", models.CharField(blank=True, max_length=255)),
                ("metadata", models.JSONField(default=dict)),
                ("headers", models.JSONField(default=dict)),
                (
                    "size",
                    models.BigIntegerField(blank=True, help_text="bytes, if they were announced", null=True),
                ),
                ("crc32c", models.CharField(blank=True, help_text="which its bytes must have", max_length=8)),
                ("md5", models.CharField(blank=True, help_text="which its bytes must have", max_length=24)),
                ("if_generation", models.BigIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
                (
                    "bucket",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="uploads", to="jobs.bucket"
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uploads",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "stored",
                    models.ForeignKey(
                        blank=True,
                        help_text="what it has become",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="jobs.storedobject",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="blob",
            index=models.Index(fields=["touched_at"], name="blob_touched"),
        ),
        migrations.AddConstraint(
            model_name="blob",
            constraint=models.UniqueConstraint(fields=("project", "sha256"), name="blob_once"),
        ),
        migrations.AddConstraint(
            model_name="blob",
            constraint=models.CheckConstraint(
                condition=models.Q(("size__gte", 0)), name="blob_size_not_negative"
            ),
        ),
        migrations.AddIndex(
            model_name="artifact",
            index=models.Index(fields=["project", "-id"], name="artifact_newest"),
        ),
        migrations.AddConstraint(
            model_name="artifact",
            constraint=models.UniqueConstraint(fields=("project", "sha256"), name="artifact_once"),
        ),
        migrations.AddConstraint(
            model_name="blobhold",
            constraint=models.UniqueConstraint(fields=("blob", "job"), name="blob_held_once"),
        ),
        migrations.AddConstraint(
            model_name="storedobject",
            constraint=models.UniqueConstraint(fields=("bucket", "path"), name="object_once"),
        ),
        migrations.AddIndex(
            model_name="upload",
            index=models.Index(fields=["created_at"], name="upload_age"),
        ),
    ]
