"""A token has a part of its owner's rights: a scope, and perhaps one project. Older tokens keep all rights."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("console", "0006_sessions_seen"), ("jobs", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="scope",
            field=models.CharField(
                db_default="admin", default="admin", help_text="console.auth.scopes.Scope", max_length=16
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="project",
            field=models.ForeignKey(
                blank=True,
                help_text="it is good for this one only",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                to="jobs.project",
            ),
        ),
    ]
