"""Notices become notifications, and the proofs of an address its confirmation. Every row is kept."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FIELDS = {
    "proved_at": "confirmed_at",
    "proved_by": "confirmed_by",
    "proof_digest": "confirmation_digest",
    "proof_asked_at": "confirmation_sent_at",
    "rest_until": "paused_until",
}
TICKS = {"notices-": "notifications-", "proofs-": "confirmations-"}


def rename_values(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("jobs", "Notification").objects.filter(event="proof").update(event="confirmation")
    for old, new in TICKS.items():
        for tick in apps.get_model("jobs", "Tick").objects.filter(name__startswith=old):
            tick.name = new + tick.name.removeprefix(old)
            tick.save(update_fields=["name"])


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0026_host_maintenance"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint("notice", "notice_once"),
        migrations.RemoveIndex("notice", "notice_due"),
        migrations.RemoveConstraint("noticetarget", "notice_target_of_one"),
        migrations.RenameModel("NoticeTarget", "NotificationTarget"),
        migrations.RenameModel("Notice", "Notification"),
        *(migrations.RenameField("notificationtarget", old, new) for old, new in FIELDS.items()),
        migrations.AlterField(
            model_name="notification",
            name="answer",
            field=models.TextField(blank=True, help_text="the last answer of the receiver, word for word"),
        ),
        migrations.AlterField(
            model_name="notification",
            name="job",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notifications",
                to="jobs.job",
            ),
        ),
        migrations.AlterField(
            model_name="notification",
            name="key",
            field=models.CharField(help_text="what it is about; unique for each target", max_length=120),
        ),
        migrations.AlterField(
            model_name="notification",
            name="target",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notifications",
                to="jobs.notificationtarget",
            ),
        ),
        migrations.AlterField(
            model_name="notificationtarget",
            name="events",
            field=models.JSONField(default=list, help_text="jobs.rules.notifications.EVENTS"),
        ),
        migrations.AlterField(
            model_name="notificationtarget",
            name="paused_until",
            field=models.DateTimeField(
                blank=True, help_text="it did not answer: nothing is sent to it before this", null=True
            ),
        ),
        migrations.AlterField(
            model_name="notificationtarget",
            name="project",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notification_targets",
                to="jobs.project",
            ),
        ),
        migrations.AlterField(
            model_name="notificationtarget",
            name="shown",
            field=models.CharField(help_text="the part of the address that pages show", max_length=120),
        ),
        migrations.AlterField(
            model_name="notificationtarget",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notification_targets",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="notification_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.UniqueConstraint(fields=("target", "key"), name="notification_once"),
        ),
        migrations.AddConstraint(
            model_name="notificationtarget",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("project__isnull", False), ("user", None)),
                    models.Q(("project", None), ("user__isnull", False)),
                    _connector="OR",
                ),
                name="notification_target_of_one",
            ),
        ),
        migrations.RunPython(rename_values, migrations.RunPython.noop),
    ]
