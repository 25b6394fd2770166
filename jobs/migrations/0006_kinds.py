"""Lines of history get a kind, the run that they are about, and how wrong the host's clock was.

Runs before or after the code: the new columns have defaults in the database. What is there already gets its kind by
its subject. The guards are lifted for that, and made again after it, which SQLite needs anyway.
"""

from __future__ import annotations

from django.db import migrations, models

from jobs.models.guards import drop_guards, make_guards


def lift(apps, schema_editor):
    drop_guards(schema_editor.connection)


def name_kinds(apps, schema_editor):
    rows = apps.get_model("jobs", "Transition").objects
    rows.exclude(subject="job").update(kind="replica")
    make_guards(schema_editor.connection)


def make(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0005_usage_of_before")]
    operations = [
        migrations.RunPython(lift, make),
        migrations.AddField(
            model_name="transition",
            name="kind",
            field=models.CharField(
                db_default="state", default="state", help_text="rules.kinds.Kind", max_length=16
            ),
        ),
        migrations.AddField(
            model_name="transition",
            name="run",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="the run that it is about", max_length=80
            ),
        ),
        migrations.AddField(
            model_name="transition",
            name="host_offset_s",
            field=models.FloatField(
                blank=True, help_text="how far the host's clock was ahead of ours then", null=True
            ),
        ),
        migrations.AlterField(
            model_name="transition",
            name="subject",
            field=models.CharField(
                help_text="job (its state), a replica's name, or wait, flag, notice (beside the state)",
                max_length=80,
            ),
        ),
        migrations.RunPython(name_kinds, lift),
    ]
