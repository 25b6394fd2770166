"""Jobs, runs, logs, projects and notifications, with the guards of history and the first rows.

The only migration until 0.2 (docs/decisions). SQLite drops triggers when Django rebuilds a table: a later migration that
alters a guarded table must call `make_guards` again (jobs/models/guards.py).
"""

import django.core.validators
import django.db.models.deletion
import django.db.models.manager
from django.conf import settings
from django.db import migrations, models
from django.utils import timezone

import jobs.rules.lifecycle.history_kinds
import jobs.rules.lifecycle.states
from jobs.models.first_rows import make_first_rows
from jobs.models.guards import make_guards


def begin(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        # Hosts send log bytes compressed. PostgreSQL is not to try it again with each piece.
        schema_editor.execute("ALTER TABLE jobs_logpiece ALTER COLUMN data SET STORAGE EXTERNAL")
    make_guards(schema_editor.connection)
    make_first_rows(apps, timezone.now())


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("agents", "0001_initial"),
        ("auth", "__first__"),
    ]

    operations = [
        migrations.CreateModel(
            name="HostMaintenance",
            fields=[
                (
                    "host",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="maintenance",
                        serialize=False,
                        to="agents.host",
                    ),
                ),
                ("cordoned", models.BooleanField(default=False)),
                ("cordoned_at", models.DateTimeField(blank=True, null=True)),
                ("cordoned_by", models.CharField(blank=True, max_length=150)),
                ("cordon_message", models.CharField(blank=True, max_length=500)),
                (
                    "drain_at",
                    models.DateTimeField(
                        blank=True, help_text="since when its replicas are to leave", null=True
                    ),
                ),
                ("drain_until", models.DateTimeField(blank=True, null=True)),
                (
                    "drain_force",
                    models.BooleanField(
                        default=False,
                        help_text="the jobs that still run there at drain_until are queued again",
                    ),
                ),
                (
                    "drain_runs",
                    models.PositiveIntegerField(default=0, help_text="how many runs it had at drain_at"),
                ),
                (
                    "drained_at",
                    models.DateTimeField(blank=True, help_text="when the last run had left it", null=True),
                ),
                (
                    "gone_at",
                    models.DateTimeField(blank=True, help_text="when an admin declared it gone", null=True),
                ),
                ("gone_by", models.CharField(blank=True, max_length=150)),
            ],
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=40, unique=True)),
                ("at", models.DateTimeField()),
                ("serial", models.BigIntegerField(default=0, help_text="how many times it was done")),
            ],
        ),
        migrations.CreateModel(
            name="DefaultQuota",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "metric",
                    models.CharField(
                        choices=[
                            ("gpus", "gpus"),
                            ("running", "running"),
                            ("queued", "queued"),
                            ("gpu_hours", "gpu_hours"),
                        ],
                        max_length=16,
                    ),
                ),
                ("accelerator_type", models.CharField(blank=True, help_text="for GPUs only", max_length=63)),
                (
                    "each",
                    models.BooleanField(
                        default=False, help_text="for each member, not for the project as a whole"
                    ),
                ),
                ("value", models.FloatField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("each", "metric", "accelerator_type"), name="default_quota_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("value__gte", 0)), name="default_quota_not_negative"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.SlugField(max_length=63, unique=True)),
                ("title", models.CharField(blank=True, max_length=100)),
                ("created_at", models.DateTimeField()),
                ("archived_at", models.DateTimeField(blank=True, null=True)),
                (
                    "weight",
                    models.FloatField(
                        default=1.0, validators=[django.core.validators.MinValueValidator(0.01)]
                    ),
                ),
                (
                    "highest_priority",
                    models.CharField(
                        choices=[("high", "high"), ("normal", "normal"), ("low", "low")],
                        db_default="normal",
                        default="normal",
                        max_length=8,
                    ),
                ),
                ("share_used", models.FloatField(default=0.0)),
                ("share_at", models.DateTimeField(blank=True, null=True)),
                ("idle_minutes", models.PositiveIntegerField(blank=True, null=True)),
                ("idle_stops", models.BooleanField(default=False)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("weight__gt", 0)), name="project_weight_positive"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NotificationTarget",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "way",
                    models.CharField(
                        choices=[("mail", "E-mail"), ("slack", "Slack or compatible"), ("hook", "Webhook")],
                        max_length=8,
                    ),
                ),
                ("sealed", models.BinaryField(help_text="{address, secret, link}, encrypted")),
                (
                    "shown",
                    models.CharField(help_text="the part of the address that pages show", max_length=120),
                ),
                ("events", models.JSONField(default=list, help_text="jobs.rules.notifications.EVENTS")),
                ("wait_hours", models.FloatField(default=4.0)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
                ("confirmed_by", models.CharField(blank=True, db_default="", default="", max_length=150)),
                (
                    "confirmation_digest",
                    models.CharField(blank=True, db_default="", db_index=True, default="", max_length=64),
                ),
                ("confirmation_sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "paused_until",
                    models.DateTimeField(
                        blank=True,
                        help_text="it did not answer: nothing is sent to it before this",
                        null=True,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notification_targets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notification_targets",
                        to="jobs.project",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("project__isnull", False), ("user", None)),
                            models.Q(("project", None), ("user__isnull", False)),
                            _connector="OR",
                        ),
                        name="notification_target_of_one",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MonthlyUse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField(help_text="its first day")),
                ("owner_name", models.CharField(max_length=150)),
                ("accelerator_type", models.CharField(blank=True, max_length=63)),
                ("gpu_seconds", models.FloatField(default=0.0)),
                ("cpu_seconds", models.FloatField(default=0.0)),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="monthly_use",
                        to="jobs.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("month", "project", "owner_name", "accelerator_type"), name="monthly_use_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("submitter", "Submitter"), ("admin", "Admin")],
                        max_length=16,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="jobs.project",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("project", "user"), name="membership_once")],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("location_name", models.CharField(max_length=63)),
                ("display_name", models.CharField(max_length=128)),
                ("owner_name", models.CharField(max_length=150)),
                (
                    "request_id",
                    models.CharField(blank=True, help_text="Idempotency-Key", max_length=200, null=True),
                ),
                (
                    "spec",
                    models.JSONField(
                        help_text="the canonical CustomJobSpec document (rules.spec.to_document)"
                    ),
                ),
                ("labels", models.JSONField(default=dict)),
                (
                    "machine_types",
                    models.JSONField(
                        default=dict,
                        help_text="the machine types defined by admins that the job asks for, as they were when it was submitted",
                    ),
                ),
                ("replica_count", models.PositiveIntegerField()),
                (
                    "resource_request",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="resource_requests.encode_request; empty: not read yet",
                    ),
                ),
                ("timeout_s", models.FloatField(db_default=604800.0, default=604800.0)),
                (
                    "wait_limit_s",
                    models.FloatField(
                        blank=True,
                        help_text="how long an attempt may wait for capacity; null: for ever",
                        null=True,
                    ),
                ),
                ("priority", models.IntegerField(db_default=0, default=0)),
                (
                    "spot",
                    models.BooleanField(
                        db_default=False, default=False, help_text="other jobs may take its place"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("QUEUED", "QUEUED"),
                            ("PENDING", "PENDING"),
                            ("RUNNING", "RUNNING"),
                            ("SUCCEEDED", "SUCCEEDED"),
                            ("FAILED", "FAILED"),
                            ("CANCELLING", "CANCELLING"),
                            ("CANCELLED", "CANCELLED"),
                        ],
                        max_length=16,
                    ),
                ),
                ("version", models.PositiveIntegerField(default=1)),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("job_retries", models.PositiveIntegerField(default=0)),
                ("internal_tries", models.PositiveIntegerField(default=0)),
                ("reason", models.TextField(blank=True, help_text="why it waits, as text")),
                (
                    "earliest_start_at",
                    models.DateTimeField(
                        blank=True, help_text="when it starts at the latest, where that is known", null=True
                    ),
                ),
                (
                    "preempted_by",
                    models.TextField(
                        blank=True,
                        help_text="why it must leave its hosts and wait again, as a sentence; empty: it need not",
                    ),
                ),
                ("flags", models.JSONField(default=list, help_text="[{flag, since, text}]")),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        help_text="the decided end, before all runs are closed; QUEUED: another attempt",
                        max_length=16,
                    ),
                ),
                ("error_code", models.IntegerField(blank=True, help_text="gRPC code", null=True)),
                ("error_message", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_requested_by", models.CharField(blank=True, max_length=150)),
                (
                    "cancel_reason",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="its error, where no person asked for the cancel",
                    ),
                ),
                ("queued_at", models.DateTimeField(help_text="when the current attempt began to wait")),
                (
                    "quota_since",
                    models.DateTimeField(
                        blank=True, help_text="since when it waits for quota, if it does", null=True
                    ),
                ),
                (
                    "quota_s",
                    models.FloatField(
                        db_default=0.0,
                        default=0.0,
                        help_text="how long the attempt has waited for quota before that",
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        blank=True, help_text="when to look again, whatever happens", null=True
                    ),
                ),
                (
                    "rests_until",
                    models.DateTimeField(
                        blank=True,
                        help_text="until then it is offered no place, although it waits for one",
                        null=True,
                    ),
                ),
                (
                    "fault",
                    models.JSONField(
                        blank=True,
                        help_text="{cause, tries} of the fault for which it was set aside last",
                        null=True,
                    ),
                ),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_by", models.CharField(blank=True, max_length=150)),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="jobs",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="jobs", to="jobs.project"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "base_manager_name": "every",
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="job_due"
                    ),
                    models.Index(
                        condition=models.Q(("rests_until__isnull", False)),
                        fields=["rests_until"],
                        name="job_rests",
                    ),
                    models.Index(fields=["project", "-id"], name="job_of_project"),
                    models.Index(fields=["state", "id"], name="job_by_state"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("request_id__isnull", False)),
                        fields=("project", "owner", "request_id"),
                        name="job_request_once_each",
                    )
                ],
            },
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("every", django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "actor",
                    models.CharField(
                        help_text="the user's name, which stays here when the user is deleted", max_length=150
                    ),
                ),
                (
                    "what",
                    models.CharField(help_text="quota.set, member.remove, host.drain, ...", max_length=40),
                ),
                ("subject_kind", models.CharField(help_text="project, user, host, ...", max_length=20)),
                ("subject", models.CharField(max_length=200)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="audit",
                        to="jobs.project",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["subject_kind", "subject", "-id"], name="audit_of_subject"),
                    models.Index(fields=["actor", "-id"], name="audit_by_actor"),
                    models.Index(fields=["project", "-id"], name="audit_of_project"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Quota",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "metric",
                    models.CharField(
                        choices=[
                            ("gpus", "gpus"),
                            ("running", "running"),
                            ("queued", "queued"),
                            ("gpu_hours", "gpu_hours"),
                        ],
                        max_length=16,
                    ),
                ),
                ("accelerator_type", models.CharField(blank=True, help_text="for GPUs only", max_length=63)),
                (
                    "each",
                    models.BooleanField(
                        default=False, help_text="for each member, not for the project as a whole"
                    ),
                ),
                ("value", models.FloatField()),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quotas", to="jobs.project"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        help_text="for this member alone; it replaces the limit for each",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quotas",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("user", None)),
                        fields=("project", "each", "metric", "accelerator_type"),
                        name="quota_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("user", None), _negated=True),
                        fields=("project", "user", "metric", "accelerator_type"),
                        name="quota_of_member_once",
                    ),
                    models.CheckConstraint(condition=models.Q(("value__gte", 0)), name="quota_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(("each", False), ("user", None), _connector="OR"),
                        name="quota_of_one_or_each",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Replica",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(help_text="workerpool1-0", max_length=40)),
                ("pool", models.PositiveSmallIntegerField()),
                ("index", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("WAITING", "WAITING"),
                            ("STARTING", "STARTING"),
                            ("RUNNING", "RUNNING"),
                            ("FINISHED", "FINISHED"),
                            ("STOPPING", "STOPPING"),
                            ("STOPPED", "STOPPED"),
                            ("FAILED", "FAILED"),
                        ],
                        max_length=16,
                    ),
                ),
                ("restarts", models.PositiveIntegerField(default=0, help_text="in this attempt")),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="replicas", to="jobs.job"
                    ),
                ),
            ],
            options={
                "ordering": ["job", "pool", "index"],
                "constraints": [models.UniqueConstraint(fields=("job", "name"), name="replica_once")],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "id",
                    models.CharField(
                        help_text="<job>-<replica>-a<attempt>-r<number>",
                        max_length=80,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("attempt", models.PositiveIntegerField()),
                (
                    "number",
                    models.PositiveIntegerField(
                        help_text="0 for the first start of the attempt, then the restarts"
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("cpus", models.FloatField(default=0)),
                ("memory_mb", models.PositiveIntegerField(default=0)),
                ("port", models.PositiveIntegerField()),
                ("gpu_uuids", models.JSONField(default=list)),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "order",
                    models.JSONField(
                        help_text="what the runner gets to start it (agents/README.md, frame start)"
                    ),
                ),
                (
                    "held",
                    models.BooleanField(
                        default=False,
                        help_text="a place to move to: it is not started before the run that it follows is closed",
                    ),
                ),
                ("held_why", models.TextField(blank=True, help_text="why its replica moves here")),
                ("stop_wanted_at", models.DateTimeField(blank=True, null=True)),
                ("stop_grace_s", models.FloatField(default=0)),
                ("stop_reason", models.TextField(blank=True)),
                (
                    "silent_since",
                    models.DateTimeField(
                        blank=True,
                        help_text="its job ended without its proof: its host had been unreachable since then",
                        null=True,
                    ),
                ),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("created", "created"),
                            ("claimed", "claimed"),
                            ("running", "running"),
                            ("ended", "ended"),
                            ("closed", "closed"),
                        ],
                        default=jobs.rules.lifecycle.states.RunPhase["CREATED"],
                        max_length=16,
                    ),
                ),
                ("boot_id", models.CharField(blank=True, max_length=64)),
                ("claimed_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "seconds",
                    models.FloatField(blank=True, help_text="by the host's monotonic clock", null=True),
                ),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                ("exit_signal", models.IntegerField(blank=True, null=True)),
                ("why", models.CharField(blank=True, max_length=16)),
                ("refusal", models.CharField(blank=True, max_length=32)),
                ("message", models.TextField(blank=True)),
                ("oom", models.BooleanField(blank=True, null=True)),
                (
                    "oom_sure",
                    models.CharField(blank=True, help_text="certain, likely, unknown", max_length=12),
                ),
                (
                    "memory_enforced",
                    models.BooleanField(blank=True, help_text="null: no limit was asked for", null=True),
                ),
                ("containment", models.CharField(blank=True, max_length=16)),
                ("survivors", models.JSONField(default=list)),
                (
                    "missing_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="when its host was found not to have it, in recovery mode",
                        null=True,
                    ),
                ),
                ("declared_lost_at", models.DateTimeField(blank=True, null=True)),
                (
                    "proved_at",
                    models.DateTimeField(
                        blank=True, help_text="when the host closed it all the same", null=True
                    ),
                ),
                ("sampled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "log_sampled",
                    models.BigIntegerField(db_default=0, default=0, help_text="log_stored at that time"),
                ),
                ("active_at", models.DateTimeField(blank=True, null=True)),
                ("gpu_active_at", models.DateTimeField(blank=True, null=True)),
                ("log_size", models.BigIntegerField(default=0, help_text="as the host last reported")),
                ("log_stored", models.BigIntegerField(default=0)),
                (
                    "log_rolled",
                    models.BigIntegerField(
                        default=0, help_text="[0, log_rolled) is in segments, not in pieces"
                    ),
                ),
                (
                    "log_proof",
                    models.BinaryField(
                        default=b"", help_text="SHA-256 digests of the 8 MiB blocks hashed so far"
                    ),
                ),
                ("log_digest_host", models.CharField(blank=True, max_length=100)),
                ("log_digest_here", models.CharField(blank=True, max_length=100)),
                ("log_complete_at", models.DateTimeField(blank=True, null=True)),
                ("prove_due_at", models.DateTimeField(blank=True, null=True)),
                ("forgotten_at", models.DateTimeField(blank=True, null=True)),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="runs", to="agents.host"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="jobs.job"
                    ),
                ),
                (
                    "replica",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="jobs.replica"
                    ),
                ),
            ],
            options={
                "ordering": ["created_at", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("forgotten_at", None)), fields=["host"], name="run_on_host"
                    ),
                    models.Index(
                        condition=models.Q(("released_at", None)), fields=["host"], name="run_holding"
                    ),
                    models.Index(
                        condition=models.Q(("declared_lost_at__isnull", False)),
                        fields=["host"],
                        name="run_declared_lost",
                    ),
                    models.Index(
                        condition=models.Q(("prove_due_at", None), _negated=True),
                        fields=["prove_due_at"],
                        name="run_to_prove",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("replica", "attempt", "number"), name="run_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("released_at", None)),
                        fields=("host", "port"),
                        name="port_held_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("log_stored__gte", 0)), name="log_stored_not_negative"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.BigIntegerField()),
                ("end", models.BigIntegerField()),
                ("key", models.CharField(max_length=300)),
                ("index", models.JSONField()),
                ("wall", models.FloatField(help_text="when its first bytes were printed", null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="segments", to="jobs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["run", "start"],
                "constraints": [models.UniqueConstraint(fields=("run", "start"), name="segment_once")],
            },
        ),
        migrations.CreateModel(
            name="LogPiece",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.BigIntegerField()),
                ("end", models.BigIntegerField()),
                ("z", models.BooleanField()),
                ("data", models.BinaryField()),
                ("at", models.JSONField(default=list, help_text="[[offset, wall seconds], ...]")),
                ("wall", models.FloatField(help_text="the first of these times", null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="pieces", to="jobs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["run", "start"],
                "constraints": [
                    models.UniqueConstraint(fields=("run", "start"), name="piece_once"),
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="piece_not_empty"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogGap",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.BigIntegerField()),
                ("end", models.BigIntegerField()),
                ("reason", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="gaps", to="jobs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["run", "start"],
                "constraints": [models.UniqueConstraint(fields=("run", "start"), name="gap_once")],
            },
        ),
        migrations.CreateModel(
            name="GpuClaim",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "gpu",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="claims", to="agents.gpu"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="gpu_claims", to="jobs.run"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at", None)), fields=("gpu",), name="gpu_held_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RunSample",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "step",
                    models.PositiveIntegerField(help_text="how many seconds it stands for: 10, 60 or 600"),
                ),
                ("at", models.DateTimeField(help_text="by our clock")),
                ("cpu", models.FloatField(help_text="cores in use")),
                ("memory_mb", models.PositiveIntegerField(null=True)),
                (
                    "gpus",
                    models.JSONField(
                        default=list, help_text="[[percent, MiB], ...] in the order of the run's gpu_uuids"
                    ),
                ),
                ("disk_free_mb", models.BigIntegerField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="samples",
                        to="jobs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["run", "at"],
                "indexes": [models.Index(fields=["step", "at"], name="sample_to_roll")],
                "constraints": [models.UniqueConstraint(fields=("run", "step", "at"), name="sample_once")],
            },
        ),
        migrations.CreateModel(
            name="ShellSession",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("user_name", models.CharField(max_length=150)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("opened_at", models.DateTimeField()),
                (
                    "seen_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="when the web process that holds it last renewed this",
                        null=True,
                    ),
                ),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("close_reason", models.CharField(blank=True, max_length=200)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="shells", to="jobs.run"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-opened_at"],
            },
        ),
        migrations.CreateModel(
            name="Stray",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("run", models.CharField(max_length=80)),
                ("phase", models.CharField(help_text="as the host last reported", max_length=16)),
                ("started_at", models.DateTimeField(blank=True, help_text="by the host's clock", null=True)),
                ("found_at", models.DateTimeField()),
                (
                    "proof",
                    models.CharField(
                        choices=[
                            ("sealed", "Started by this deployment"),
                            ("unsealed", "Without a seal"),
                            ("false", "With a false seal"),
                        ],
                        db_default="sealed",
                        default="sealed",
                        max_length=10,
                    ),
                ),
                ("cpus", models.FloatField(db_default=0, default=0)),
                ("memory_mb", models.PositiveIntegerField(db_default=0, default=0)),
                ("gpu_uuids", models.JSONField(db_default=[], default=list)),
                ("port", models.PositiveIntegerField(blank=True, null=True)),
                ("stop_wanted_at", models.DateTimeField(blank=True, null=True)),
                ("stop_by", models.CharField(blank=True, max_length=150)),
                ("dismissed_at", models.DateTimeField(blank=True, null=True)),
                ("dismissed_by", models.CharField(blank=True, db_default="", max_length=150)),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="strays", to="agents.host"
                    ),
                ),
            ],
            options={
                "ordering": ["host__name", "run"],
                "constraints": [models.UniqueConstraint(fields=("host", "run"), name="stray_once")],
            },
        ),
        migrations.CreateModel(
            name="Transition",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "host_at",
                    models.DateTimeField(
                        blank=True, help_text="by the host's clock, where the host reported it", null=True
                    ),
                ),
                (
                    "host_offset_s",
                    models.FloatField(
                        blank=True, help_text="how far the host's clock was ahead of ours then", null=True
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        db_default="state",
                        default=jobs.rules.lifecycle.history_kinds.HistoryKind["STATE"],
                        help_text="history_kinds.HistoryKind",
                        max_length=16,
                    ),
                ),
                (
                    "subject",
                    models.CharField(
                        help_text="job (its state), a replica's name, or wait, flag, notice (beside the state)",
                        max_length=80,
                    ),
                ),
                (
                    "run",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="the run that the line is about",
                        max_length=80,
                    ),
                ),
                (
                    "wait_reason",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="of a line that says why the job waits: rules.scheduling.wait_reasons.WaitReason",
                        max_length=24,
                    ),
                ),
                ("from_state", models.CharField(blank=True, max_length=16)),
                ("to_state", models.CharField(max_length=16)),
                ("attempt", models.PositiveIntegerField()),
                ("cause", models.TextField()),
                ("actor", models.CharField(max_length=150)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="transitions", to="jobs.job"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Usage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("owner_name", models.CharField(max_length=150)),
                ("accelerator_type", models.CharField(blank=True, max_length=63)),
                ("gpus", models.PositiveIntegerField()),
                ("cpus", models.FloatField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                (
                    "folded",
                    models.BooleanField(
                        default=False, help_text="it is in the sums of its months and in the project's share"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.job"
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.project"
                    ),
                ),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="usage", to="jobs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [
                    models.Index(fields=["ended_at"], name="usage_by_end"),
                    models.Index(condition=models.Q(("folded", False)), fields=["id"], name="usage_unfolded"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("ended_at__gte", models.F("began_at"))), name="usage_forward"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MachineType",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                ("cpus", models.FloatField()),
                (
                    "memory_mb",
                    models.PositiveIntegerField(
                        help_text="nominal; machine_types.allocatable_mb says what a job gets"
                    ),
                ),
                ("accelerator_type", models.CharField(blank=True, max_length=63)),
                ("accelerator_count", models.PositiveIntegerField(default=0)),
                ("note", models.CharField(blank=True, max_length=200)),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=150)),
                (
                    "location",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="machine_types",
                        to="agents.location",
                    ),
                ),
            ],
            options={
                "ordering": ["name", "location__name"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("location", None), _negated=True),
                        fields=("name", "location"),
                        name="machine_type_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("location", None)),
                        fields=("name",),
                        name="machine_type_everywhere_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.CharField(help_text="what it is about; unique for each target", max_length=120),
                ),
                ("event", models.CharField(max_length=16)),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("text", models.JSONField(help_text="{title, text, data}")),
                ("made_at", models.DateTimeField()),
                ("tries", models.PositiveIntegerField(default=0)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                ("given_up_at", models.DateTimeField(blank=True, null=True)),
                (
                    "answer",
                    models.TextField(blank=True, help_text="the last answer of the receiver, word for word"),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notifications",
                        to="jobs.job",
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notifications",
                        to="jobs.notificationtarget",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="notification_due",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("target", "key"), name="notification_once")],
            },
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
