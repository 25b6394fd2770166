"""The page Train new model: the steps of Vertex AI's page, and the training pipeline that they start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra.sentences import shown
from agents.infra.sql import read_ahead
from console import large_bodies
from console.auth import access
from console.auth.person import person
from console.forms import code_fields
from console.forms.jobs import JobDestination
from console.forms.pipelines.train_draft import TrainDraft
from console.presenters.new_job import pipeline_code
from console.presenters.new_job import summary as summaries
from console.presenters.trained_models import names_of_models
from console.views.fragments import page_or_fragment
from console.views.jobs import code_uploads, job_templates
from console.views.jobs.form_choices import FormChoices
from console.views.jobs.form_requests import (
    READS,
    chosen_project,
    new_destination,
    only_submitters,
    pressed,
    problems_of,
    violations_of,
)
from jobs import services
from jobs.models import JobTemplate
from jobs.pipelines import pipelines
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import Violation
from jobs.scheduling import machine_types


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@login_required
def train(request: HttpRequest) -> HttpResponse:
    only_submitters(request)
    if request.method != "POST":
        if "template" in request.GET:
            return _from_template(request)
        return _show(request, TrainDraft.empty(new_destination(chosen_project(request))))
    draft = TrainDraft.from_post(request.POST)
    FormChoices.of(request).set_in(draft)
    if not draft.is_valid():
        return _show(request, draft, _violations(request, draft))
    if pressed(request) == "check":
        found = [*_violations_of_pipeline(request, draft), *problems_of(request, draft)]
        return _show(request, draft, found, checked=not found)
    if pressed(request) == "template":
        violations, problem = job_templates.save_form(request, draft)
        return _show(request, draft, violations, template_problem=problem)
    return _start(request, draft, draft.destination)


@never_cache
@sensitive_post_parameters()
@require_POST
@login_required
def summary(request: HttpRequest) -> HttpResponse:
    """The summary beside the form, after a change of the form."""
    only_submitters(request)
    draft = TrainDraft.from_post(request.POST)
    with read_ahead(READS, for_all=True):
        choices = FormChoices.of(request)
        choices.set_in(draft)
        draft.is_valid()
        seen = _summarized(request, draft)
        # Also of a job that could start: what is said of its model may be refused.
        draft.add_violations(_violations(request, draft))
        has_them = request.POST.get("offered") == choices.offers_of(draft)
        offers = {} if has_them else choices.offers(draft)
    context = {"draft": draft, "changed": True, **offers, **seen}
    return render(request, "jobs/_summary_exchange.html", context)


@never_cache
@sensitive_post_parameters()
@require_POST
@login_required
def upload_code(request: HttpRequest) -> HttpResponse:
    """Store an archive of code from the form, and show the form with it. Scripts send theirs to the REST address."""
    only_submitters(request)
    if large_bodies.is_first_call(request):
        return code_uploads.body_wanted(request)
    data, problems = code_uploads.stored_code(request)
    draft = TrainDraft.from_post(data)
    FormChoices.of(request).set_in(draft)
    draft.is_valid()
    return _show(request, draft, code_problems=problems, status=400 if problems else 200)


def _from_template(request: HttpRequest) -> HttpResponse:
    """Begin with the job of a template. Code that differs between pools is shown by the new-job form only."""
    row, destination = job_templates.chosen(request)
    if not code_fields.can_show(row.document.get("jobSpec", {}).get("workerPoolSpecs", [])):
        text = _("The pools of {name} bring different code, and this form has one for all of them.")
        messages.info(request, text.format(name=row.name))
        return redirect(f"{reverse('new-job')}?template={row.pk}")
    return _show(request, TrainDraft.from_document(row.document, destination), template=row)


def _start(request: HttpRequest, draft: TrainDraft, destination: JobDestination) -> HttpResponse:
    project = access.project_or_404(request.user, "submit", destination.project)
    who = person(request)
    try:
        with transaction.atomic():
            made = pipelines.create(
                project,
                who,
                draft.pipeline_of(draft.document()),
                destination.location,
                destination.request_id or None,
                timezone.now(),
                access.can(who, "prioritize", project),
            )
    except InvalidDocument as refused:
        # A pipeline is read before its job is: the page shows all errors at once.
        return _show(request, draft, [*refused.violations, *_violations_of_job(request, draft)])
    except services.Exhausted as full:
        return _show(request, draft, unavailable=shown(full.message), status=429)
    except services.Conflict as conflict:
        if conflict.field != "request_id":
            return _show(request, draft, [Violation(conflict.field, shown(conflict.message))])
        # The person changed a sent form after the browser's Back, and means another training.
        fresh = replace(destination, request_id=new_destination().request_id)
        return _start(request, draft, fresh)
    except services.Refused as refused_:
        return _show(request, draft, [Violation(refused_.field, shown(refused_.message))])
    except services.Unavailable as unavailable:
        return _show(request, draft, unavailable=shown(unavailable.message), status=503)
    return redirect("job", job_id=made.job_id)


def _violations(request: HttpRequest, draft: TrainDraft) -> list[Violation]:
    """Of the pipeline and of its job: of a form of which Django may have refused a field."""
    return [*_violations_of_pipeline(request, draft), *_violations_of_job(request, draft)]


def _violations_of_pipeline(request: HttpRequest, draft: TrainDraft) -> Iterable[Violation]:
    """Why a submit would refuse what the training has besides its job, at the fields of the form."""
    project = FormChoices.of(request).project_of(draft)
    if project is None:
        return ()
    try:
        pipelines.read(project, draft.pipeline_of(draft.shown_document()))
    except (InvalidDocument, services.Refused) as refused:
        return violations_of(refused)
    return ()


def _violations_of_job(request: HttpRequest, draft: TrainDraft) -> Iterable[Violation]:
    location = FormChoices.of(request).location_of(draft)
    if location is not None:
        try:
            machine_types.read(draft.shown_document(), location)
        except InvalidDocument as refused:
            return refused.violations
    return ()


def _show(
    request: HttpRequest,
    draft: TrainDraft,
    violations: Iterable[Violation] = (),
    unavailable: str = "",
    status: int = 200,
    checked: bool = False,
    template: JobTemplate | None = None,
    **more: object,
) -> HttpResponse:
    """Show the form. `checked`: the person asked whether the training would start now. `template`: it
    begins with this one."""
    with read_ahead(READS, for_all=True):
        choices = FormChoices.of(request)
        choices.set_in(draft)
        # Before the violations: a field that is refused still says what was asked for.
        seen = _summarized(request, draft)
        offers = choices.offers(draft)
        project = choices.project_of(draft)
    draft.add_violations(violations)
    context = {
        "draft": draft,
        "action": pressed(request),
        "unavailable": unavailable,
        "preview": seen["summary"].start if checked else None,
        "models_of_project": names_of_models(project) if project is not None else (),
        "code_file": choices.code_file(draft),
        **job_templates.named(request, template),
        **offers,
        **seen,
        **more,
    }
    return page_or_fragment(request, "jobs/train_model.html", "jobs/_train_model.html", context, status)


def _summarized(request: HttpRequest, draft: TrainDraft) -> dict[str, Any]:
    """What the page says about the training: the summary of its job, and programs that start the same."""
    choices = FormChoices.of(request)
    location, project = choices.location_of(draft), choices.project_of(draft)
    if location is None or project is None:
        return {"summary": summaries.Summary(), "codes": ()}
    found = summaries.of(draft.shown_document(), location, project, choices.user)
    if found.document is None:
        return {"summary": found, "codes": ()}
    base = (settings.TRAINYARD.url or request.build_absolute_uri("/")).rstrip("/")
    pipeline = draft.pipeline_of(found.document)
    return {"summary": found, "codes": pipeline_code.of(pipeline, project.name, location, base)}
