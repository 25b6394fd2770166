"""Sessions with their owner in a column. The sessions that exist move over, so that nobody is logged out."""

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import migrations, models
from django.utils import timezone

BATCH = 1000


def move(apps, schema_editor):
    old, new = apps.get_model("sessions", "Session"), apps.get_model("console", "Session")
    people = set(apps.get_model("auth", "User").objects.values_list("pk", flat=True))
    store, rows = SessionStore(), []
    for row in old.objects.filter(expire_date__gt=timezone.now()).iterator(chunk_size=BATCH):
        owner = int(store.decode(row.session_data).get(SESSION_KEY, 0))
        if owner in people:
            fields = {"session_key": row.session_key, "session_data": row.session_data}
            rows.append(new(**fields, expire_date=row.expire_date, user_id=owner))
    new.objects.bulk_create(rows, batch_size=BATCH)
    old.objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0001_initial"),
        ("sessions", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Session",
            fields=[
                (
                    "session_key",
                    models.CharField(
                        max_length=40, primary_key=True, serialize=False, verbose_name="session key"
                    ),
                ),
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "abstract": False,
            },
        ),
        migrations.RunPython(move, migrations.RunPython.noop, elidable=True),
    ]
