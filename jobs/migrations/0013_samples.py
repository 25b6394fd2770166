"""Samples of how busy runs are; on each run, when it last did anything. New table, new columns: before the code."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0012_declared_lost_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="active_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="gpu_active_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="sampled_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="RunSample",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "step",
                    models.PositiveIntegerField(help_text="how many seconds it stands for: 10, 60 or 600"),
                ),
                ("at", models.DateTimeField(help_text="by our clock")),
                ("cpu", models.FloatField(help_text="cores in use")),
                ("memory_mb", models.PositiveIntegerField(null=True)),
                (
                    "gpus",
                    models.JSONField(
                        default=list, help_text="[[percent, MiB], ...] in the order of the run's gpu_uuids"
                    ),
                ),
                ("disk_free_mb", models.BigIntegerField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="samples",
                        to="jobs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["run", "at"],
                "indexes": [models.Index(fields=["step", "at"], name="sample_to_roll")],
                "constraints": [models.UniqueConstraint(fields=("run", "step", "at"), name="sample_once")],
            },
        ),
    ]
