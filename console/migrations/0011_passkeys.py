"""Passkeys: the public halves of keys of people's devices (WebAuthn)."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0010_oidc_identities"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Passkey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                (
                    "digest",
                    models.CharField(
                        help_text="the SHA-256 of the credential's id", max_length=64, unique=True
                    ),
                ),
                (
                    "credential",
                    models.BinaryField(help_text="fido2's AttestedCredentialData: the id and the public key"),
                ),
                (
                    "counter",
                    models.BigIntegerField(
                        help_text="of signatures, as the device said last; 0: it does not count"
                    ),
                ),
                ("made_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="passkeys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["-made_at", "-id"]},
        ),
    ]
