from django.db import migrations, models

WORDS = [("high", "high"), ("normal", "normal"), ("low", "low")]


def keep_what_is_used(apps, schema_editor):
    """Projects whose jobs have said high go on saying so."""
    rows = apps.get_model("jobs", "Job").objects.filter(priority__gt=0).order_by()
    used = set(rows.values_list("project", flat=True).distinct())
    apps.get_model("jobs", "Project").objects.filter(pk__in=used).update(highest_priority="high")


class Migration(migrations.Migration):
    dependencies = [("jobs", "0019_sealed_strays")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="highest_priority",
            field=models.CharField(choices=WORDS, db_default="normal", default="normal", max_length=8),
        ),
        migrations.RunPython(keep_what_is_used, migrations.RunPython.noop),
    ]
