"""Where, when and by which way a session began and was last used, for the list that its owner sees."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("console", "0005_preferences")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="made_at",
            field=models.DateTimeField(blank=True, help_text="null: before this was written down", null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="seen_at",
            field=models.DateTimeField(
                blank=True, help_text="a time of the last five minutes before the last page", null=True
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="address",
            field=models.CharField(blank=True, db_default="", help_text="of the last page", max_length=64),
        ),
        migrations.AddField(
            model_name="session",
            name="agent",
            field=models.CharField(
                blank=True, db_default="", help_text="as the browser names itself", max_length=200
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="way",
            field=models.CharField(
                blank=True, db_default="", help_text="console.auth.session_store.Way", max_length=16
            ),
        ),
    ]
