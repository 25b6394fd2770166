from django.db import migrations, models


class Migration(migrations.Migration):
    """Renames the column, and keeps its table: a table that SQLite makes anew would lose the triggers that guard it."""

    dependencies = [
        ("jobs", "0027_notifications"),
    ]

    operations = [
        migrations.RenameField(model_name="job", old_name="asks", new_name="resource_request"),
        migrations.AlterField(
            model_name="job",
            name="resource_request",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="resource_requests.encode_request; empty: not read yet",
            ),
        ),
    ]
