"""The address of a model may be longer than the one that people give: it has /model behind it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0033_what_jobs_bring")]

    operations = [
        migrations.AlterField("modelversion", "artifact_uri", models.CharField(max_length=2100)),
    ]
