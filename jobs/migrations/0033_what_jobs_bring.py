"""What a job brings, as it was at submit: digests of its code and packages, commits."""

from __future__ import annotations

from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0032_outputs_of_jobs"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="resolved",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="what it brings, by pools, as it was at submit: digests, commits (preparations/brought.py)",
            ),
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
