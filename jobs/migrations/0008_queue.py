"""What the scheduler asks of a job gets columns; jobs of before are read when they are first looked at."""

from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_machine_types_and_moves"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="asks",
            field=models.TextField(
                blank=True, db_default="", default="", help_text="rules.asks.text; empty: not read yet"
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="earliest_start_at",
            field=models.DateTimeField(
                blank=True, help_text="when it starts at the latest, where that is known", null=True
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="priority",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="job",
            name="spot",
            field=models.BooleanField(db_default=False, default=False, help_text="others may take its place"),
        ),
        migrations.AddField(
            model_name="job",
            name="timeout_s",
            field=models.FloatField(db_default=604800.0, default=604800.0),
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
