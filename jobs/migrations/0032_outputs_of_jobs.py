"""What jobs write on hosts, how far it is stored, and which directories the hosts of a location share."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0006_host_loads"),
        ("jobs", "0031_preparations"),
    ]

    operations = [
        migrations.CreateModel(
            name="HostOutputs",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "addresses",
                    models.JSONField(
                        default=list, help_text="[[bucket, path]]: what of the storage the host has a copy of"
                    ),
                ),
                (
                    "stage",
                    models.CharField(
                        choices=[
                            ("writing", "may still be written"),
                            ("ending", "is being stored"),
                            ("stored", "is stored"),
                            ("kept", "is stored, but for files that stay on the host"),
                        ],
                        default="writing",
                        max_length=8,
                    ),
                ),
                ("created_at", models.DateTimeField()),
                (
                    "due_at",
                    models.DateTimeField(blank=True, help_text="when a worker looks at it next", null=True),
                ),
                ("serial", models.PositiveIntegerField(default=0, help_text="one more with each claim")),
                (
                    "tries",
                    models.PositiveIntegerField(
                        default=0, help_text="how often in a row it could not be done"
                    ),
                ),
                ("problem", models.TextField(blank=True, help_text="why the last try ended too early")),
                (
                    "pause_s",
                    models.FloatField(
                        default=0, help_text="how long the last pause was, while nothing is new"
                    ),
                ),
                (
                    "looked_at",
                    models.DateTimeField(
                        blank=True, help_text="when the host listed its files last", null=True
                    ),
                ),
                (
                    "left_out",
                    models.JSONField(default=dict, help_text="how many entries there are no files, by kind"),
                ),
                (
                    "filled_at",
                    models.DateTimeField(blank=True, help_text="null: runs wait for it", null=True),
                ),
                ("fill_total", models.BigIntegerField(default=0, help_text="bytes")),
                ("fill_done", models.BigIntegerField(default=0)),
                ("moving_path", models.TextField(blank=True, help_text="the file that is coming")),
                ("moving_bytes", models.BigIntegerField(default=0)),
                (
                    "settled_at",
                    models.DateTimeField(
                        blank=True, help_text="when all that was there was stored", null=True
                    ),
                ),
                (
                    "dropped_at",
                    models.DateTimeField(blank=True, help_text="when the host deleted its copy", null=True),
                ),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agents.host"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="host_outputs",
                        to="jobs.job",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="LocationStorage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("bucket", models.CharField(blank=True, help_text="empty: every bucket", max_length=63)),
                ("directory", models.CharField(max_length=500)),
                (
                    "location",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agents.location"
                    ),
                ),
            ],
            options={
                "ordering": ["bucket"],
            },
        ),
        migrations.CreateModel(
            name="OutputFile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(help_text="bucket/name of the object", max_length=1024)),
                ("size", models.BigIntegerField()),
                ("mtime_ns", models.BigIntegerField()),
                ("ctime_ns", models.BigIntegerField()),
                ("inode", models.BigIntegerField()),
                ("seen_at", models.DateTimeField(help_text="when it was first listed like this")),
                ("stored_at", models.DateTimeField(blank=True, null=True)),
                (
                    "generation",
                    models.BigIntegerField(default=0, help_text="of the object that it was stored as"),
                ),
                (
                    "gone_at",
                    models.DateTimeField(blank=True, help_text="when the program had deleted it", null=True),
                ),
                (
                    "problem",
                    models.CharField(blank=True, help_text="why the host did not give it", max_length=300),
                ),
                (
                    "outputs",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="files",
                        to="jobs.hostoutputs",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="hostoutputs",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="outputs_due"
            ),
        ),
        migrations.AddIndex(
            model_name="hostoutputs",
            index=models.Index(
                condition=models.Q(("filled_at", None)), fields=["host"], name="outputs_unfilled"
            ),
        ),
        migrations.AddIndex(
            model_name="hostoutputs",
            index=models.Index(
                condition=models.Q(("stage__in", ["writing", "ending"])),
                fields=["stage"],
                name="outputs_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="hostoutputs",
            constraint=models.UniqueConstraint(fields=("job", "host"), name="host_outputs_once"),
        ),
        migrations.AddConstraint(
            model_name="locationstorage",
            constraint=models.UniqueConstraint(fields=("location", "bucket"), name="location_storage_once"),
        ),
        migrations.AddIndex(
            model_name="outputfile",
            index=models.Index(
                condition=models.Q(("gone_at", None), ("stored_at", None)),
                fields=["outputs"],
                name="output_to_store",
            ),
        ),
        migrations.AddConstraint(
            model_name="outputfile",
            constraint=models.UniqueConstraint(fields=("outputs", "path"), name="output_file_once"),
        ),
    ]
