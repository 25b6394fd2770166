"""The time for which a job may wait for capacity stands still while it waits for quota."""

from django.db import migrations, models

from jobs.models.guards import make_guards


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


def read_limits(apps, schema_editor):
    """What rules.customjob.CustomJobSpec.wait_limit_s says, for those that wait now."""
    jobs = apps.get_model("jobs", "Job")
    for job in jobs.objects.filter(state="QUEUED").only("pk", "spec"):
        scheduling = job.spec.get("scheduling", {})
        wait = scheduling.get("maxWaitDuration")
        default = 86_400.0 if scheduling.get("strategy") == "FLEX_START" else None
        limit_s = default if wait is None else float(wait.removesuffix("s")) or None
        if limit_s is not None:
            jobs.objects.filter(pk=job.pk).update(wait_limit_s=limit_s)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0016_shells_and_requests"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="wait_limit_s",
            field=models.FloatField(
                blank=True, help_text="how long an attempt may wait for capacity; null: for ever", null=True
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="quota_since",
            field=models.DateTimeField(
                blank=True, help_text="since when it waits for quota, if it does", null=True
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="quota_s",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                help_text="how long the attempt has waited for quota before that",
            ),
        ),
        migrations.RunPython(read_limits, migrations.RunPython.noop),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
