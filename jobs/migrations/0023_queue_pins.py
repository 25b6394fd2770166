import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0022_sums_of_gpu_samples")]

    operations = [
        migrations.CreateModel(
            name="QueuePin",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="queue_pin",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                ("rank", models.FloatField(help_text="from 1: the smaller, the sooner")),
                ("whole", models.BooleanField()),
                ("moved", models.BooleanField()),
                ("by", models.CharField(help_text="the user's name", max_length=150)),
                ("at", models.DateTimeField()),
            ],
        ),
    ]
