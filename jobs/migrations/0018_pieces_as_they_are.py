from django.db import migrations


def as_they_are(apps, schema_editor):
    """What a host sent is packed already: PostgreSQL shall not try to pack it again."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE jobs_logpiece ALTER COLUMN data SET STORAGE EXTERNAL")


class Migration(migrations.Migration):
    dependencies = [("jobs", "0017_quota_clock")]

    operations = [migrations.RunPython(as_they_are, migrations.RunPython.noop)]
