"""What must never happen, forbidden where no code of ours can forget it.

A terminal job never changes its state, its error or its times again. A transition is written once: never changed, never
deleted (so a job's row stays too; deleting a job only hides it). Runs before or after the code.

SQLite drops triggers when Django rebuilds a table: a later migration that alters jobs_job or jobs_transition there
must call `make_guards` again. tests/unit/jobs/models/test_constraints.py would tell.
"""

from __future__ import annotations

from django.db import migrations

from jobs.models.guards import drop_guards, make_guards


def make(apps, schema_editor):
    make_guards(schema_editor.connection)


def drop(apps, schema_editor):
    drop_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [migrations.RunPython(make, drop)]
