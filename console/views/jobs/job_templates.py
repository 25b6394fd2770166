"""Templates of jobs: the page that lists them, saving the form as one, and beginning a new job with one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.jobs import AnyDraft, JobDestination
from console.presenters.numbered_pages import numbered
from console.views.jobs.form_choices import FormChoices
from console.views.jobs.form_requests import new_destination
from jobs import services
from jobs.models import Job, JobTemplate, Project
from jobs.projects import job_templates, locations
from jobs.rules.spec import parse
from jobs.rules.spec.custom_job import CustomJob
from jobs.rules.spec.parse import Violation
from jobs.scheduling import machine_types

OF_PROJECT = "project"


@require_safe
@login_required
def templates(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "submit", Job)
    rows = _visible(request).defer("document")
    pages = numbered(rows, request.GET.get("page", ""), reverse("job-templates"))
    return render(request, "jobs/templates.html", {"templates": list(pages.rows), "pages": pages})


@require_POST
@login_required
def remove(request: HttpRequest, template_id: int) -> HttpResponse:
    row = get(request, template_id)
    with transaction.atomic():
        job_templates.remove(
            row.project or person(request), row.name, person(request).username, timezone.now()
        )
    messages.success(request, _("The template {name} is deleted.").format(name=row.name))
    return redirect("job-templates")


def get(request: HttpRequest, template_id: int) -> JobTemplate:
    """The template, if the person may use it: their own, or one of a project to which they may submit."""
    access.require(request.user, "submit", Job)
    return get_object_or_404(_visible(request), pk=template_id)


def chosen(request: HttpRequest) -> tuple[JobTemplate, JobDestination]:
    """The template that the address names, and where its job goes."""
    named = request.GET["template"]
    if not (named.isascii() and named.isdigit() and len(named) <= 18):
        raise Http404
    row = get(request, int(named))
    destination = new_destination(row.project.name if row.project else "")
    return row, replace(destination, location=row.location_name)


def save_form(request: HttpRequest, draft: AnyDraft) -> tuple[Iterable[Violation], str]:
    """Save the job of a form. Returns what is wrong with the job, and what is wrong with the template."""
    project = access.project_or_404(request.user, "submit", draft.destination.project)
    location = draft.destination.location
    try:
        locations.check_serves(project, location)
        _save(request, machine_types.read(draft.document(), location)[0], project, location)
    except parse.InvalidDocument as refused:
        return refused.violations, ""
    except services.Refused as refused_:
        return (), shown(refused_.message)
    return (), ""


def named(request: HttpRequest, row: JobTemplate | None) -> dict[str, str]:
    """What the form says under which name, and for whom, it is to be saved: what was typed, or the template that the
    form began with."""
    of = OF_PROJECT if row is not None and row.project_id else "me"
    return {
        "template_name": request.POST.get("template_name", row.name if row is not None else ""),
        "template_of": request.POST.get("template_of", of),
    }


def _save(request: HttpRequest, job: CustomJob, project: Project, location: str) -> None:
    """Save the job under the name that was typed. Raises Refused."""
    who, name = person(request), request.POST.get("template_name", "").strip()
    owner = project if request.POST.get("template_of") == OF_PROJECT else who
    with transaction.atomic():
        _row, new = job_templates.put(owner, name, job, location, who.username, timezone.now())
    text = _("Saved as the template {name}.") if new else _("The template {name} is replaced.")
    messages.success(request, text.format(name=name))


def _visible(request: HttpRequest) -> QuerySet[JobTemplate]:
    return job_templates.visible(person(request), list(FormChoices.of(request).projects.values()))
