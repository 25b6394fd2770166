"""Tokens end at a time. Those that exist get a year, so that no script stops with the upgrade."""

from datetime import timedelta

from django.db import migrations, models
from django.utils import timezone


def in_a_year():
    return timezone.now() + timedelta(days=365)


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0002_sessions_with_owner"),
    ]

    operations = [
        migrations.AddField(
            "apitoken", "expires_at", models.DateTimeField(default=in_a_year), preserve_default=False
        ),
        migrations.AddField(
            "apitoken",
            "warned_at",
            models.DateTimeField(
                null=True, blank=True, help_text="when a message said that the token ends soon"
            ),
        ),
        migrations.AddField(
            "apitoken",
            "elevated",
            models.BooleanField(
                default=False,
                help_text="it may do what asks a person for the password (console/auth/login/confirmation.py)",
            ),
        ),
    ]
