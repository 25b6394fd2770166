"""How much of the GPUs of each location was held, hour by hour: the occupancy of a month."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0006_host_loads"), ("jobs", "0027_language_of_addresses")]

    operations = [
        migrations.CreateModel(
            name="LocationHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField()),
                ("gpus", models.PositiveIntegerField(help_text="how many there were when it was written")),
                ("held_s", models.FloatField(help_text="GPU-seconds")),
                (
                    "location",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hours",
                        to="agents.location",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("start", "location"), name="location_hour_once")
                ],
            },
        ),
    ]
