"""The new-job form, as fields or as JSON: show, check, preview and submit it; clone a job."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.hosts import adding
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.jobs import AnyDraft, Draft, JobDestination, JsonDraft
from console.forms.sample import SAMPLE
from console.presenters.jobs import preview
from console.views.fragments import page_or_fragment
from jobs import services
from jobs.models import Job
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


@require_http_methods(["GET", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    _only_submitters(request)
    if request.method != "POST":
        document = SAMPLE if "sample" in request.GET else EMPTY
        kind = JsonDraft if request.GET.get("as") == "json" else Draft
        return _show(request, kind.from_document(document, _new_destination(request.GET.get("project", ""))))
    draft = (JsonDraft if request.POST.get("mode") == "json" else Draft).from_post(request.POST)
    _set_choices(request, draft)
    if not draft.is_valid():
        return _show(request, draft, violations=_more_violations(request, draft))
    return ACTIONS.get(request.POST.get("action", ""), _submit)(request, draft)


@require_safe
@login_required
def clone(request: HttpRequest, job_id: int) -> HttpResponse:
    _only_submitters(request)
    job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=job_id)
    document = {"displayName": job.display_name, "labels": job.labels, "jobSpec": job.spec}
    destination = JobDestination(job.project.name, job.location_name, _new_destination().request_id)
    projects = _projects(request)
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
    return _show(request, Draft.from_document(document, destination), cloned=job)


@require_POST
@login_required
def sample(request: HttpRequest) -> HttpResponse:
    """Submit the sample job with one click."""
    _only_submitters(request)
    destination = JobDestination(_projects(request)[0], _locations(request)[0], _new_destination().request_id)
    return _submit_document(request, JsonDraft.from_document(SAMPLE, destination), SAMPLE, destination)


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
            )
    except parse.InvalidDocument as refused:
        return _show(request, draft, violations=refused.violations)
    except services.Exhausted as full:
        return _show(request, draft, unavailable=shown(full.message), status=429)
    except services.Conflict:
        # The person changed a sent form after the browser's Back, and means another job: give it another request id.
        fresh = replace(destination, request_id=_new_destination().request_id)
        return _submit_document(request, draft, document, fresh)
    except services.Refused as refused:
        return _show(request, draft, violations=[parse.Violation(refused.field, shown(refused.message))])
    except services.Unavailable as unavailable:
        return _show(request, draft, unavailable=str(unavailable), status=503)
    return redirect("job", job_id=job.pk)


def _more_violations(request: HttpRequest, draft: AnyDraft) -> Iterable[Violation]:
    """Return the violations of a document of which Django refused a field: the page shows all errors at once."""
    location = _shown_location(draft.location, _open_locations(request)) if isinstance(draft, Draft) else None
    if location is not None:
        try:
            machine_types.read(draft.document(), location)
        except parse.InvalidDocument as refused:
            return refused.violations
    return ()


def _check(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    project = access.project_or_404(request.user, "submit", draft.destination.project)
    try:
        locations.check_serves(project, draft.destination.location)
        job, types = machine_types.read(draft.document(), draft.destination.location)
        services.check_priority(job, project, access.can(request.user, "prioritize", project))
    except (parse.InvalidDocument, services.Refused) as refused:
        return _show(request, draft, violations=_violations_of(refused))
    seen = preview.of(job.job_spec, draft.destination.location, types, project, person(request))
    return _show(request, draft, preview=seen)


def _to_json(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    """Show the form as JSON, valid or not. A valid document is shown in its canonical spelling."""
    document: dict[str, Any] = draft.document()
    violations: Iterable[Violation] = ()
    try:
        document = _canonical(request, draft)
    except (parse.InvalidDocument, services.Refused) as refused:
        violations = _violations_of(refused)
    return _show(request, JsonDraft.from_document(document, draft.destination), violations=violations)


def _to_form(request: HttpRequest, draft: AnyDraft) -> HttpResponse:
    """Show the JSON as a form. An invalid document stays JSON, because the form could lose a part of it."""
    try:
        document = _canonical(request, draft)
    except (parse.InvalidDocument, services.Refused) as refused:
        return _show(request, draft, violations=_violations_of(refused))
    return _show(request, Draft.from_document(document, draft.destination))


def _canonical(request: HttpRequest, draft: AnyDraft) -> dict[str, Any]:
    """Return the document in its canonical spelling. Errors may name what a location has, so it has to serve the
    project."""
    project = access.project_or_404(request.user, "submit", draft.destination.project)
    locations.check_serves(project, draft.destination.location)
    return parse.to_document(machine_types.read(draft.document(), draft.destination.location)[0])


def _violations_of(refused: parse.InvalidDocument | services.Refused) -> Iterable[Violation]:
    if isinstance(refused, services.Refused):
        return [Violation(refused.field, shown(refused.message))]
    return refused.violations


ACTIONS: dict[str, Callable[[HttpRequest, AnyDraft], HttpResponse]] = {
    "submit": _submit,
    "check": _check,
    "json": _to_json,
    "form": _to_form,
}


def _show(
    request: HttpRequest,
    draft: AnyDraft,
    violations: Iterable[Violation] = (),
    unavailable: str = "",
    status: int = 200,
    **context: object,
) -> HttpResponse:
    usable = _open_locations(request)
    draft.set_choices(_projects(request), usable or [adding.DEFAULT_LOCATION])
    draft.add_violations(violations)
    offers = {
        "gpus": preview.gpu_offers(person(request)),
        "machines": _machines(request, draft, usable),
        "unavailable": unavailable,
    }
    page, fragment = f"jobs/new_{draft.mode}.html", f"jobs/_new_{draft.mode}.html"
    return page_or_fragment(request, page, fragment, {"draft": draft, **offers, **context}, status)


def _machines(request: HttpRequest, draft: AnyDraft, usable: list[str]) -> list[preview.MachineOffer]:
    """Return the machine types that a host of the location could hold for the project of the form."""
    if isinstance(draft, JsonDraft):
        return []
    location = _shown_location(str(draft.job["location"].value() or ""), usable)
    if location is None:
        return []
    named = str(draft.job["project"].value() or "")
    project = named if named in _projects(request) else ""
    offers = preview.machine_offers(location, person(request), project)
    return [offer for offer in offers if offer.ever]


def _shown_location(named: str, usable: list[str]) -> str | None:
    """Return the location of which the page shows what it has: this one, or the one that the form selects instead. For
    the person, no others exist."""
    return named if named in usable else next(iter(usable), None)


def _set_choices(request: HttpRequest, draft: AnyDraft) -> None:
    draft.set_choices(_projects(request), _locations(request))


def _new_destination(project: str = "") -> JobDestination:
    """Return a destination with a new request id. Sending a form twice with one id makes one job."""
    return JobDestination(project, "", f"form-{uuid.uuid4()}")


def _only_submitters(request: HttpRequest) -> None:
    access.require(request.user, "submit", Job)
    if not _projects(request):
        raise PermissionDenied  # all projects of the person are archived


def _projects(request: HttpRequest) -> list[str]:
    return [project.name for project in access.projects_allowing(request.user, "submit")]


def _locations(request: HttpRequest) -> list[str]:
    """Return the locations to choose from, the default one first. There is always one, and a submit says why it is
    refused."""
    return _open_locations(request) or [adding.DEFAULT_LOCATION]


def _open_locations(request: HttpRequest) -> list[str]:
    """Return the locations that serve a project of the person, the default one first. The default exists even before
    the first host."""
    bindings = locations.read_bindings()
    projects = [project.pk for project in access.projects_allowing(request.user, "submit")]
    names = locations.names() or [adding.DEFAULT_LOCATION]
    usable = [name for name in names if bindings.serves_any(name, projects)]
    return sorted(usable, key=lambda name: name != adding.DEFAULT_LOCATION)
