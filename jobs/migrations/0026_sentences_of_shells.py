"""Why a shell was closed, as a sentence that pages show in their language."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0025_occupancy")]

    operations = [
        migrations.AlterField(
            model_name="shellsession",
            name="close_reason",
            field=models.TextField(blank=True),
        ),
    ]
