"""The new-job form, as fields or as JSON: show, check, preview and submit it; clone a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.infra.sentences import shown
from agents.infra.sql import read_ahead
from console import large_bodies
from console.auth import access
from console.auth.person import person
from console.forms.env_lines import read_env_lines
from console.forms.env_rows import EnvRow
from console.forms.jobs import POOLS, AnyDraft, Draft, JobDestination, JsonDraft, draft_of
from console.forms.sample import SAMPLE
from console.presenters import brought
from console.presenters.brought import Brought
from console.presenters.new_job import as_code
from console.presenters.new_job import summary as summaries
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
from jobs.models import Job, JobTemplate
from jobs.projects import locations
from jobs.rules.spec import parse
from jobs.rules.spec.parse import Violation
from jobs.scheduling import machine_types

EMPTY: dict[str, Any] = {
    "jobSpec": {
        "workerPoolSpecs": [
            {
                "containerSpec": {
                    "command": ["bash", "-c", ""],
                    "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
                }
            }
        ],
        "enableWebAccess": True,
    }
}


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    only_submitters(request)
    if request.method != "POST":
        if "template" in request.GET:
            return _from_template(request)
        document = SAMPLE if "sample" in request.GET else EMPTY
        kind = JsonDraft if request.GET.get("as") == "json" else Draft
        return _show(request, kind.from_document(document, new_destination(chosen_project(request))))
    draft = (JsonDraft if request.POST.get("mode") == "json" else Draft).from_post(request.POST)
    FormChoices.of(request).set_in(draft)
    if not draft.is_valid():
        return _show(request, draft, violations=_more_violations(request, draft))
    return ACTIONS.get(pressed(request), _submit)(request, draft)


@never_cache
@sensitive_post_parameters()
@require_POST
@login_required
def summary(request: HttpRequest) -> HttpResponse:
    """The summary beside the form, after a change of the form."""
    only_submitters(request)
    draft = (JsonDraft if request.POST.get("mode") == "json" else Draft).from_post(request.POST)
    with read_ahead(READS, for_all=True):
        choices = FormChoices.of(request)
        choices.set_in(draft)
        draft.is_valid()
        seen = _summarized(request, draft)
        if seen["summary"].document is None:
            draft.add_violations(_more_violations(request, draft))
        # These take as long as all the rest, and change with the location only.
        has_them = request.POST.get("offered") == choices.offers_of(draft)
        offers = {} if has_them else choices.offers(draft)
        context = {"draft": draft, "changed": True, **offers, **seen}
    return render(request, "jobs/_summary_exchange.html", context)


@never_cache
@sensitive_post_parameters()
@require_POST
@login_required
def env_rows(request: HttpRequest) -> HttpResponse:
    """The rows of lines of a .env file that were pasted into the name of a variable."""
    only_submitters(request)
    pool, problems = request.POST.get("pool", "pool0"), []
    if pool not in {f"pool{number}" for number in range(POOLS)}:
        raise Http404
    rows: list[EnvRow] = []
    try:
        rows = [EnvRow(name, value) for name, value in read_env_lines(request.POST.get("lines", ""))]
    except ValidationError as refused:
        problems = refused.messages
    return render(
        request, "forms/pasted_rows.html", {"name": f"{pool}-env", "rows": rows, "problems": problems}
    )


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
    draft = Draft.from_post(data)
    FormChoices.of(request).set_in(draft)
    draft.is_valid()
    return _show(request, draft, code_problems=problems, status=400 if problems else 200)


@require_safe
@login_required
def clone(request: HttpRequest, job_id: int) -> HttpResponse:
    only_submitters(request)
    job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=job_id)
    document = {"displayName": job.display_name, "labels": job.labels, "jobSpec": job.spec}
    request_id = new_destination().request_id
    destination = JobDestination(job.project.name, job.location_name, request_id, str(job.pk))
    projects = list(FormChoices.of(request).projects)
    if destination.project not in projects:
        text = (
            _("Project {project} is archived. Project {other} is selected in the form instead.")
            if job.project.archived_at
            else _(
                "Project {project} does not let you submit jobs. Project {other} is selected in the form instead."
            )
        )
        messages.warning(
            request,
            text.format(project=destination.project, other=projects[0]),
        )
    return _show(request, draft_of(document, destination), cloned=job)


@require_POST
@login_required
def sample(request: HttpRequest) -> HttpResponse:
    """Submit the sample job with one click."""
    only_submitters(request)
    choices = FormChoices.of(request)
    project, location = next(iter(choices.projects)), choices.locations[0]
    destination = JobDestination(project, location, new_destination().request_id)
    return _submit_document(request, JsonDraft.from_document(SAMPLE, destination), SAMPLE, destination)


def _from_template(request: HttpRequest) -> HttpResponse:
    row, destination = job_templates.chosen(request)
    return _show(request, draft_of(row.document, destination), template=row)


def _submit(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    return _submit_document(request, draft, draft.document(), draft.destination)


def _submit_document(
    request: HttpRequest, draft: AnyDraft, document: dict[str, Any], destination: JobDestination
) -> HttpResponse:
    project = access.project_or_404(request.user, "submit", destination.project)
    who, now = person(request), timezone.now()
    try:
        with transaction.atomic():
            job = services.submit(
                project,
                who,
                document,
                destination.location,
                destination.request_id or None,
                now,
                may_prioritize=access.can(who, "prioritize", project),
                cloned_from=_source(request, destination.cloned_from),
                same_bytes=destination.same_bytes,
            )
    except parse.InvalidDocument as refused:
        return _show(request, draft, violations=refused.violations)
    except services.Exhausted as full:
        return _show(request, draft, unavailable=shown(full.message), status=429)
    except services.Conflict:
        # The person changed a sent form after the browser's Back, and means another job: give it another request id.
        fresh = replace(destination, request_id=new_destination().request_id)
        return _submit_document(request, draft, document, fresh)
    except services.Refused as refused:
        return _show(request, draft, violations=[parse.Violation(refused.field, shown(refused.message))])
    except services.Unavailable as unavailable:
        return _show(request, draft, unavailable=shown(unavailable.message), status=503)
    return redirect("job", job_id=job.pk)


def _more_violations(request: HttpRequest, draft: AnyDraft) -> Iterable[Violation]:
    """Return the violations of a document of which Django may have refused a field: the page shows all errors at
    once."""
    location = FormChoices.of(request).location_of(draft)
    document = draft.shown_document()
    if location is not None and document:
        try:
            machine_types.read(document, location)
        except parse.InvalidDocument as refused:
            return refused.violations
    return ()


def _check(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    destination = draft.destination
    copied = _source(request, destination.cloned_from) if destination.same_bytes else None
    found = problems_of(request, draft, copied)
    return _show(request, draft, found, checked=not found)


def _save_template(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    """Save the form as a template, and show it again."""
    violations, problem = job_templates.save_form(request, draft)
    return _show(request, draft, violations, template_problem=problem)


def _to_json(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    """Show the form as JSON, valid or not. A valid document is shown in its canonical spelling."""
    document: dict[str, Any] = draft.document()
    violations: Iterable[Violation] = ()
    try:
        document = _canonical(request, draft)
    except (parse.InvalidDocument, services.Refused) as refused:
        violations = violations_of(refused)
    return _show(request, JsonDraft.from_document(document, draft.destination), violations=violations)


def _to_form(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    """Show the JSON as a form. An invalid document stays JSON, because the form could lose a part of it."""
    try:
        document = _canonical(request, draft)
    except (parse.InvalidDocument, services.Refused) as refused:
        return _show(request, draft, violations=violations_of(refused))
    shown_as = draft_of(document, draft.destination)
    if isinstance(shown_as, JsonDraft):
        messages.info(
            request,
            _("The pools bring different code, and the form has one for all of them. This job stays JSON."),
        )
    return _show(request, shown_as)


def _canonical(request: HttpRequest, draft: AnyDraft) -> dict[str, Any]:
    """Return the document in its canonical spelling. Errors may name what a location has, so it has to serve the
    project."""
    project = access.project_or_404(request.user, "submit", draft.destination.project)
    locations.check_serves(project, draft.destination.location)
    return parse.to_document(machine_types.read(draft.document(), draft.destination.location)[0])


ACTIONS: dict[str, Callable[[HttpRequest, AnyDraft], HttpResponse]] = {
    "submit": _submit,
    "check": _check,
    "template": _save_template,
    "json": _to_json,
    "form": _to_form,
}


def _show(
    request: HttpRequest,
    draft: AnyDraft,
    violations: Iterable[Violation] = (),
    unavailable: str = "",
    status: int = 200,
    checked: bool = False,
    template: JobTemplate | None = None,
    **context: object,
) -> HttpResponse:
    """Show the form. `checked`: the person asked whether the job would start now. `template`: it begins with
    this one."""
    with read_ahead(READS, for_all=True):
        choices = FormChoices.of(request)
        choices.set_in(draft)
        # Before the violations: a field that is refused still says what was asked for.
        seen = _summarized(request, draft)
        offers = choices.offers(draft)
    draft.add_violations(violations)
    draft.hide_secrets()
    page, fragment = f"jobs/new_{draft.mode}.html", f"jobs/_new_{draft.mode}.html"
    everything = {
        "draft": draft,
        "action": pressed(request),
        "unavailable": unavailable,
        "preview": seen["summary"].start if checked else None,
        "kept": _kept(request, draft),
        **job_templates.named(request, template),
        "code_file": choices.code_file(draft),
        **offers,
        **seen,
        **context,
    }
    return page_or_fragment(request, page, fragment, everything, status)


def _summarized(request: HttpRequest, draft: AnyDraft) -> dict[str, Any]:
    """What the page says about the job of the form: the summary, and programs that submit the same job."""
    choices = FormChoices.of(request)
    location, project = choices.location_of(draft), choices.project_of(draft)
    if location is None or project is None:
        return {"summary": summaries.Summary(), "codes": ()}
    found = summaries.of(draft.shown_document(), location, project, choices.user)
    if found.document is None:
        return {"summary": found, "codes": ()}
    base = settings.TRAINYARD.url or request.build_absolute_uri("/")
    return {"summary": found, "codes": as_code.of(found.document, project.name, location, base.rstrip("/"))}


def _source(request: HttpRequest, named: str) -> int | None:
    """Return the id of the job that the form was made from, if the person may see that job."""
    if not (named.isascii() and named.isdigit() and len(named) <= 19):
        return None
    rows = access.visible(request.user, Job.objects.filter(pk=int(named)))
    return rows.values_list("pk", flat=True).first()


def _kept(request: HttpRequest, draft: AnyDraft) -> tuple[Brought, ...]:
    """What a clone brings again: what the job that it is made from was found to bring."""
    source = _source(request, str(draft.job["cloned_from"].value() or ""))
    return () if source is None else brought.kept(Job.objects.get(pk=source))
