import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_templates_and_clones")]

    operations = [
        migrations.CreateModel(
            name="ExpectedStart",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="expected_start",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                (
                    "usual_at",
                    models.DateTimeField(
                        help_text="if jobs run as long as such jobs did lately; null: nothing is known of any",
                        null=True,
                    ),
                ),
                (
                    "limit_at",
                    models.DateTimeField(help_text="if all jobs run to their limits", null=True),
                ),
            ],
        ),
    ]
