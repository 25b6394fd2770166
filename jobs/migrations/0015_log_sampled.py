"""How far a log was stored when its run was sampled last. A column with a default: before the code."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0014_notices"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="log_sampled",
            field=models.BigIntegerField(db_default=0, default=0, help_text="log_stored at that time"),
        ),
    ]
