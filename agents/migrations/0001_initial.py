"""Hosts, GPUs, leases and the history of hosts. The only migration until 0.2 (docs/decisions)."""

import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Dispatcher",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100, unique=True)),
                ("seen_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Host",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.SlugField(max_length=63)),
                ("address", models.CharField(max_length=255)),
                ("port", models.PositiveIntegerField(default=22)),
                ("user", models.CharField(max_length=64)),
                (
                    "jump",
                    models.CharField(
                        blank=True, help_text="ProxyJump: user@host:port,user@host:port", max_length=1000
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("added_by", models.CharField(max_length=150)),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
                ("pinned_key", models.TextField(blank=True)),
                ("offered_key", models.TextField(blank=True)),
                (
                    "offered_at",
                    models.CharField(
                        blank=True,
                        help_text="empty for the host's own key, address:port for the key of a jump host",
                        max_length=300,
                    ),
                ),
                (
                    "jump_keys",
                    models.JSONField(
                        default=dict, help_text="the pinned keys of the jump hosts by address:port"
                    ),
                ),
                ("key_accepted_by", models.CharField(blank=True, max_length=150)),
                ("key_accepted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("new", "Waiting for its key to be accepted"),
                            ("checking", "Being checked"),
                            ("up", "Up"),
                            ("unreachable", "Unreachable"),
                            ("auth_failed", "Login refused"),
                            ("blocked", "Host key changed"),
                            ("unusable", "Not usable"),
                        ],
                        default="new",
                        max_length=16,
                    ),
                ),
                ("status_since", models.DateTimeField()),
                ("last_error", models.TextField(blank=True, help_text="the last SSH error, unchanged")),
                ("seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pid_namespaces",
                    models.BooleanField(
                        default=False, help_text="each new run gets a PID namespace of its own"
                    ),
                ),
                (
                    "checklist",
                    models.JSONField(default=list, help_text="[{name, ok: true|false|null, text, fix}]"),
                ),
                ("facts", models.JSONField(default=dict)),
                ("cpus", models.PositiveIntegerField(default=0)),
                ("memory_mb", models.PositiveIntegerField(default=0)),
                ("free_disk_mb", models.BigIntegerField(blank=True, null=True)),
                ("boot_id", models.CharField(blank=True, max_length=64)),
                ("clock_offset_s", models.FloatField(blank=True, null=True)),
                ("runner_sha", models.CharField(blank=True, max_length=64)),
                ("lease_owner", models.CharField(blank=True, max_length=100)),
                ("lease_token", models.BigIntegerField(default=0)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "due_at",
                    models.DateTimeField(blank=True, help_text="when the next check is due", null=True),
                ),
                (
                    "mark",
                    models.BigIntegerField(
                        default=0,
                        help_text="grows while a dispatcher holds a link, and is sent to the host: see recovery.py",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "base_manager_name": "every",
                "default_manager_name": "every",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("retired_at", None)),
                        fields=("name",),
                        name="host_name_in_service_once",
                    )
                ],
            },
            managers=[
                ("every", django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name="Keypair",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("public_line", models.TextField()),
                ("private_encrypted", models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name="Location",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.SlugField(max_length=63, unique=True)),
                ("title", models.CharField(blank=True, max_length=100)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Recovery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("since", models.DateTimeField()),
                ("why", models.TextField()),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
                ("confirmed_by", models.CharField(blank=True, max_length=150)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="HostEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=32)),
                ("text", models.TextField()),
                ("actor", models.CharField(max_length=150)),
                (
                    "limited",
                    models.BooleanField(
                        default=True, help_text="counts towards the limit of lines in a minute"
                    ),
                ),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="agents.host"
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-id"],
            },
        ),
        migrations.AddField(
            model_name="host",
            name="location",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="hosts", to="agents.location"
            ),
        ),
        migrations.CreateModel(
            name="Gpu",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uuid", models.CharField(max_length=80)),
                ("index", models.PositiveIntegerField()),
                ("model", models.CharField(max_length=100)),
                ("memory_mb", models.PositiveIntegerField()),
                (
                    "accelerator_type",
                    models.CharField(help_text="Vertex's name, if it has one", max_length=63),
                ),
                ("present", models.BooleanField(default=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("ok", "Free of foreign processes"),
                            ("quarantined", "Quarantined"),
                            ("cleaning", "Being verified"),
                        ],
                        default="ok",
                        max_length=16,
                    ),
                ),
                ("state_since", models.DateTimeField(blank=True, null=True)),
                ("state_text", models.TextField(blank=True)),
                ("holders", models.JSONField(blank=True, default=list)),
                ("evict", models.JSONField(blank=True, default=list)),
                ("evict_by", models.CharField(blank=True, max_length=150)),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="gpus", to="agents.host"
                    ),
                ),
            ],
            options={
                "ordering": ["host", "index"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "ok"), _negated=True),
                        fields=["host"],
                        name="gpu_out_of_use",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("uuid",), name="gpu_uuid_once")],
            },
        ),
    ]
