"""A job that cannot be given its place by a fault of ours rests."""

from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_highest_priority")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="rests_until",
            field=models.DateTimeField(
                blank=True,
                help_text="until then it is offered no place, although it waits for one",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="fault",
            field=models.JSONField(
                blank=True, help_text="{cause, tries} of what made it rest the last time", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("rests_until__isnull", False)), fields=["rests_until"], name="job_rests"
            ),
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
