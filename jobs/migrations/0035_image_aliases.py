"""Aliases of images: what a location uses in place of the image that a job names."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0006_host_loads"),
        ("jobs", "0034_longer_artifact_addresses"),
    ]

    operations = [
        migrations.CreateModel(
            name="ImageAlias",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="without tag; or a prefix with * at its end", max_length=500),
                ),
                ("image", models.CharField(help_text='another image, or "host"', max_length=1024)),
                (
                    "location",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agents.location"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.AddConstraint(
            model_name="imagealias",
            constraint=models.UniqueConstraint(fields=("location", "name"), name="image_alias_once"),
        ),
    ]
