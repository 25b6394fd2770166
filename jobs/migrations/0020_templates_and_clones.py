import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0019_shared_shells"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="cloned_from",
            field=models.BigIntegerField(blank=True, help_text="the job that it is a copy of", null=True),
        ),
        migrations.CreateModel(
            name="JobTemplate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("document", models.JSONField(help_text="a CustomJob in its canonical form")),
                ("location_name", models.CharField(max_length=63)),
                ("made_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=150)),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="job_templates",
                        to="jobs.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="job_templates",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("project", None), ("user__isnull", False)),
                            models.Q(("project__isnull", False), ("user", None)),
                            _connector="OR",
                        ),
                        name="template_of_one_owner",
                    ),
                    models.UniqueConstraint(fields=("project", "name"), name="template_of_project_once"),
                    models.UniqueConstraint(fields=("user", "name"), name="template_of_person_once"),
                ],
            },
        ),
        # SQLite may make the table of jobs anew, without its triggers.
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
