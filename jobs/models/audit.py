"""The audit: who changed what that admins decide. Entries are never changed and never deleted (guards.py)."""

from __future__ import annotations

from django.db import models

from jobs.models.projects import Project


class AuditEntry(models.Model):
    at = models.DateTimeField()
    actor = models.CharField(
        max_length=150, help_text="the user's name, which stays here when the user is deleted"
    )
    what = models.CharField(max_length=40, help_text="quota.set, member.remove, host.drain, ...")
    subject_kind = models.CharField(max_length=20, help_text="project, user, host, ...")
    subject = models.CharField(max_length=200)
    project = models.ForeignKey(Project, null=True, on_delete=models.PROTECT, related_name="audit")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["subject_kind", "subject", "-id"], name="audit_of_subject"),
            models.Index(fields=["actor", "-id"], name="audit_by_actor"),
            models.Index(fields=["project", "-id"], name="audit_of_project"),
        ]
