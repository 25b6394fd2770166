from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0024_recordings_of_shells")]

    operations = [
        migrations.AddIndex(
            model_name="run", index=models.Index(fields=["host", "released_at"], name="run_held_until")
        ),
    ]
