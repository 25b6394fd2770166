"""Templates of jobs: documents that a person or a project keeps under a name, to begin new jobs with."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.projects import Project


class JobTemplate(models.Model):
    """A named document of one project or of one person. It has no values of secrets."""

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="job_templates")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="job_templates"
    )
    name = models.CharField(max_length=100)
    document = models.JSONField(help_text="a CustomJob in its canonical form")
    location_name = models.CharField(max_length=63)
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None, user__isnull=False) | Q(project__isnull=False, user=None),
                name="template_of_one_owner",
            ),
            models.UniqueConstraint(fields=["project", "name"], name="template_of_project_once"),
            models.UniqueConstraint(fields=["user", "name"], name="template_of_person_once"),
        ]

    def __str__(self) -> str:
        return self.name
