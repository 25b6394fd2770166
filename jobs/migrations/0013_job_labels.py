import django.db.models.deletion
from django.db import migrations, models

BATCH = 1_000


def copy(apps, schema_editor):
    """Copy the labels of the submitted documents."""
    job_label = apps.get_model("jobs", "JobLabel")
    rows = apps.get_model("jobs", "Job").objects.order_by("pk").exclude(labels={})
    found = rows.values_list("pk", "project", "labels")
    last = 0
    while some := list(found.filter(pk__gt=last)[:BATCH]):
        job_label.objects.bulk_create(
            job_label(job_id=job, project_id=project, key=key, value=value)
            for job, project, labels in some
            for key, value in labels.items()
        )
        last = some[-1][0]


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0012_index_missing_runs"),
    ]

    operations = [
        migrations.CreateModel(
            name="JobLabel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="label_rows",
                        to="jobs.job",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="jobs.project",
                    ),
                ),
                ("key", models.CharField(max_length=64)),
                ("value", models.CharField(blank=True, max_length=64)),
                (
                    "added_by",
                    models.CharField(
                        blank=True, help_text="empty: it came with the document", max_length=150
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["key", "value", "-job", "project"], name="job_label_found")],
                "constraints": [models.UniqueConstraint(fields=("job", "key"), name="job_label_once")],
            },
        ),
        migrations.RunPython(copy, migrations.RunPython.noop),
    ]
