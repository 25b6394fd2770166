"""The language in which an address of a person gets notifications."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0026_sentences_of_shells")]

    operations = [
        migrations.AddField(
            model_name="notificationtarget",
            name="language",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="of its reader; empty: English",
                max_length=16,
            ),
        ),
    ]
