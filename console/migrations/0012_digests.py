"""Whether a person wants a digest by e-mail, and when the next one is due."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("console", "0011_passkeys")]

    operations = [
        migrations.AddField(
            model_name="preferences",
            name="digest",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="daily, weekly; empty: no digest",
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="preferences",
            name="digest_due_at",
            field=models.DateTimeField(blank=True, db_index=True, null=True),
        ),
    ]
