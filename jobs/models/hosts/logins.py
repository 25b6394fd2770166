"""Logins of a machine that serve one project each. Without a template, a machine serves all by its one login."""

from __future__ import annotations

from django.db import models

from agents.models import Host
from jobs.models.projects import Project


class LoginTemplate(models.Model):
    """From now on, new jobs run on this machine under a login of their project."""

    host = models.OneToOneField(
        Host, on_delete=models.CASCADE, primary_key=True, related_name="login_template"
    )
    template = models.CharField(max_length=64, help_text="train-{project}, or train-{id}")


class ProjectLogin(models.Model):
    """The project that a login (a host row with a machine) serves. It never changes: the files of a login stay."""

    host = models.OneToOneField(
        Host, on_delete=models.CASCADE, primary_key=True, related_name="project_login"
    )
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="logins")
