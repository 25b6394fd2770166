from django.db import migrations, models


def nothing_reported(apps, schema_editor):
    """Runs that their hosts forgot before metrics were there: nobody will say that they reported none."""
    runs = apps.get_model("jobs", "Run").objects.using(schema_editor.connection.alias)
    runs.filter(metrics_proof="", forgotten_at__isnull=False).update(metrics_proof="none")


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0039_tuning"),
    ]

    operations = [
        migrations.AddField(
            model_name="trial",
            name="measurements",
            field=models.JSONField(
                blank=True, help_text="of one that is over: about a hundred, by step, as `final`", null=True
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="metrics_read",
            field=models.BigIntegerField(
                help_text="up to where its log was searched for metrics; null: not asked for, or done",
                null=True,
            ),
        ),
        migrations.RunPython(nothing_reported, migrations.RunPython.noop),
    ]
