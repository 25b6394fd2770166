"""What hosts must have before runs may start there, and the runs that are held back for it."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

import jobs.rules.lifecycle.preparation_states


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0006_host_loads"),
        ("jobs", "0030_training_pipelines"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="prepared_at",
            field=models.DateTimeField(blank=True, help_text="when it was held back no longer", null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="preparing",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="it is held back: a host of its attempt does not have all yet that its runs need",
            ),
        ),
        migrations.CreateModel(
            name="Preparation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=20)),
                ("key", models.CharField(max_length=80)),
                (
                    "what",
                    models.JSONField(
                        help_text="what the host is told (agents/README.md, frame prepare), without secrets"
                    ),
                ),
                ("title", models.TextField(help_text="what it is, for people")),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("WANTED", "WANTED"),
                            ("WORKING", "WORKING"),
                            ("READY", "READY"),
                            ("FAILED", "FAILED"),
                        ],
                        default=jobs.rules.lifecycle.preparation_states.PreparationState["WANTED"],
                        max_length=8,
                    ),
                ),
                (
                    "asked",
                    models.PositiveIntegerField(default=1, help_text="how often it was asked for anew"),
                ),
                (
                    "lost",
                    models.PositiveIntegerField(
                        default=0, help_text="how often its process was lost since it was asked for"
                    ),
                ),
                ("done", models.BigIntegerField(default=0)),
                ("total", models.BigIntegerField(blank=True, null=True)),
                ("unit", models.CharField(blank=True, max_length=20)),
                ("message", models.TextField(blank=True, help_text="the words of the program that prepares")),
                ("tail", models.TextField(blank=True, help_text="the end of its output")),
                ("fault", models.CharField(blank=True, help_text="of a failure: user or host", max_length=4)),
                ("result", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
                ("began_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("used_at", models.DateTimeField()),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preparations",
                        to="agents.host",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PreparationNeed",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "preparation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="needs",
                        to="jobs.preparation",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="needs", to="jobs.run"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="preparation",
            constraint=models.UniqueConstraint(fields=("host", "kind", "key"), name="preparation_once"),
        ),
        migrations.AddConstraint(
            model_name="preparationneed",
            constraint=models.UniqueConstraint(fields=("run", "preparation"), name="need_once"),
        ),
    ]
