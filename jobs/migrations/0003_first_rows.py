"""Project `default` and location `default` exist from the start. Data only; runs before or after the code."""

from __future__ import annotations

from django.db import migrations
from django.utils import timezone

from jobs.models.first_rows import make_first_rows


def make(apps, schema_editor):
    make_first_rows(apps, timezone.now())


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_guards"), ("agents", "0001_initial")]
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
