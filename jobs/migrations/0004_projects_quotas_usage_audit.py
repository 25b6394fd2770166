"""Projects grow: weights, quotas, usage by run, and the audit with its guard. Tables and columns; runs before the code."""

from __future__ import annotations

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_first_rows"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "actor",
                    models.CharField(help_text="the user's name; who has left keeps it here", max_length=150),
                ),
                (
                    "what",
                    models.CharField(help_text="quota.set, member.remove, host.drain, ...", max_length=40),
                ),
                ("subject_kind", models.CharField(help_text="project, user, host, ...", max_length=20)),
                ("subject", models.CharField(max_length=200)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="DefaultQuota",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "metric",
                    models.CharField(
                        choices=[
                            ("gpus", "gpus"),
                            ("running", "running"),
                            ("queued", "queued"),
                            ("gpu_hours", "gpu_hours"),
                        ],
                        max_length=16,
                    ),
                ),
                ("accelerator_type", models.CharField(blank=True, help_text="for GPUs only", max_length=63)),
                (
                    "each",
                    models.BooleanField(
                        default=False, help_text="for each member, not for the project as a whole"
                    ),
                ),
                ("value", models.FloatField()),
            ],
        ),
        migrations.CreateModel(
            name="MonthlyUse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField(help_text="its first day")),
                ("owner_name", models.CharField(max_length=150)),
                ("accelerator_type", models.CharField(blank=True, max_length=63)),
                ("gpu_seconds", models.FloatField(default=0.0)),
                ("cpu_seconds", models.FloatField(default=0.0)),
            ],
        ),
        migrations.CreateModel(
            name="Quota",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "metric",
                    models.CharField(
                        choices=[
                            ("gpus", "gpus"),
                            ("running", "running"),
                            ("queued", "queued"),
                            ("gpu_hours", "gpu_hours"),
                        ],
                        max_length=16,
                    ),
                ),
                ("accelerator_type", models.CharField(blank=True, help_text="for GPUs only", max_length=63)),
                (
                    "each",
                    models.BooleanField(
                        default=False, help_text="for each member, not for the project as a whole"
                    ),
                ),
                ("value", models.FloatField()),
            ],
        ),
        migrations.CreateModel(
            name="Usage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("owner_name", models.CharField(max_length=150)),
                ("accelerator_type", models.CharField(blank=True, max_length=63)),
                ("gpus", models.PositiveIntegerField()),
                ("cpus", models.FloatField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                (
                    "folded",
                    models.BooleanField(
                        default=False, help_text="it is in the sums of its months and in the project's share"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.AddField(
            model_name="project",
            name="archived_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="project",
            name="share_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="project",
            name="share_used",
            field=models.FloatField(default=0.0),
        ),
        migrations.AddField(
            model_name="project",
            name="weight",
            field=models.FloatField(default=1.0, validators=[django.core.validators.MinValueValidator(0.01)]),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("weight__gt", 0)), name="project_weight_positive"
            ),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="project",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="audit",
                to="jobs.project",
            ),
        ),
        migrations.AddConstraint(
            model_name="defaultquota",
            constraint=models.UniqueConstraint(
                fields=("each", "metric", "accelerator_type"), name="default_quota_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="defaultquota",
            constraint=models.CheckConstraint(
                condition=models.Q(("value__gte", 0)), name="default_quota_not_negative"
            ),
        ),
        migrations.AddField(
            model_name="monthlyuse",
            name="owner",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="monthlyuse",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="monthly_use", to="jobs.project"
            ),
        ),
        migrations.AddField(
            model_name="quota",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="quotas", to="jobs.project"
            ),
        ),
        migrations.AddField(
            model_name="quota",
            name="user",
            field=models.ForeignKey(
                blank=True,
                help_text="for this member alone; it replaces the limit for each",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="quotas",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="usage",
            name="job",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.job"
            ),
        ),
        migrations.AddField(
            model_name="usage",
            name="owner",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="usage",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.project"
            ),
        ),
        migrations.AddField(
            model_name="usage",
            name="run",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.run"
            ),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["subject_kind", "subject", "-id"], name="audit_of_subject"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["actor", "-id"], name="audit_by_actor"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["project", "-id"], name="audit_of_project"),
        ),
        migrations.AddConstraint(
            model_name="monthlyuse",
            constraint=models.UniqueConstraint(
                fields=("month", "project", "owner_name", "accelerator_type"), name="monthly_use_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.UniqueConstraint(
                condition=models.Q(("user", None)),
                fields=("project", "each", "metric", "accelerator_type"),
                name="quota_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.UniqueConstraint(
                condition=models.Q(("user", None), _negated=True),
                fields=("project", "user", "metric", "accelerator_type"),
                name="quota_of_member_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.CheckConstraint(
                condition=models.Q(("value__gte", 0)), name="quota_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.CheckConstraint(
                condition=models.Q(("each", False), ("user", None), _connector="OR"),
                name="quota_of_one_or_each",
            ),
        ),
        migrations.AddIndex(
            model_name="usage",
            index=models.Index(fields=["ended_at"], name="usage_by_end"),
        ),
        migrations.AddIndex(
            model_name="usage",
            index=models.Index(condition=models.Q(("folded", False)), fields=["id"], name="usage_unfolded"),
        ),
        migrations.AddConstraint(
            model_name="usage",
            constraint=models.CheckConstraint(
                condition=models.Q(("ended_at__gte", models.F("began_at"))), name="usage_forward"
            ),
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
