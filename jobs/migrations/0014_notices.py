"""Notification targets and notices; the idle rule of projects; why a job was cancelled where no person asked for it.

New tables and columns only, so it may run before the code. SQLite rebuilds jobs_job for it, and its guards with it.
"""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from jobs.models.guards import make_guards


def make(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0013_samples"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="cancel_reason",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="told as its error, where no person asked for it",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="idle_minutes",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="project",
            name="idle_stops",
            field=models.BooleanField(default=False),
        ),
        migrations.CreateModel(
            name="NoticeTarget",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "way",
                    models.CharField(
                        choices=[("mail", "E-mail"), ("slack", "Slack or compatible"), ("hook", "Webhook")],
                        max_length=8,
                    ),
                ),
                ("sealed", models.BinaryField(help_text="{address, secret}, encrypted")),
                (
                    "shown",
                    models.CharField(
                        help_text="as much of the address as is ever shown again", max_length=120
                    ),
                ),
                ("events", models.JSONField(default=list, help_text="rules.notices.EVENTS")),
                ("wait_hours", models.FloatField(default=4.0)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                (
                    "rest_until",
                    models.DateTimeField(
                        blank=True, help_text="it did not answer; others of it wait too", null=True
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notice_targets",
                        to="jobs.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notice_targets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.CharField(help_text="what it is about: told once to each target", max_length=120),
                ),
                ("event", models.CharField(max_length=16)),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("text", models.JSONField(help_text="{title, text, data}")),
                ("made_at", models.DateTimeField()),
                ("tries", models.PositiveIntegerField(default=0)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                ("given_up_at", models.DateTimeField(blank=True, null=True)),
                ("answer", models.TextField(blank=True, help_text="the last one, word for word")),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notices",
                        to="jobs.job",
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notices",
                        to="jobs.noticetarget",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.AddConstraint(
            model_name="noticetarget",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("project__isnull", False), ("user", None)),
                    models.Q(("project", None), ("user__isnull", False)),
                    _connector="OR",
                ),
                name="notice_target_of_one",
            ),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="notice_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.UniqueConstraint(fields=("target", "key"), name="notice_once"),
        ),
        migrations.RunPython(make, migrations.RunPython.noop),
    ]
