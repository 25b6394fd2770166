"""The new-study form, as fields or as JSON: show, check and submit it; made from a job, or from another study."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.jobs import JobDestination
from console.forms.sample_study import EMPTY_STUDY, SAMPLE_STUDY
from console.forms.studies import AnyStudyDraft, StudyDraft, StudyJsonDraft, study_draft_of
from console.presenters.studies import study_summary
from console.presenters.studies.study_document import (
    as_curl,
    canonical_document,
    continued_document,
    study_document,
)
from console.presenters.studies.study_summary import StudySummary
from console.views.fragments import page_or_fragment
from console.views.jobs.form_choices import FormChoices
from console.views.projects.switch import COOKIE
from jobs import services
from jobs.models import Job, TuningJob
from jobs.projects import locations
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import Violation, parse_spec
from jobs.rules.tuning.parse_tuning_job import parse_tuning_job
from jobs.rules.tuning.study_advice import study_advice
from jobs.scheduling.machine_types import of_location
from jobs.tuning import tuning_jobs
from jobs.tuning.snapshot import study_of

MAX_NAME = 128


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "submit", Job)
    if not FormChoices.of(request).projects:
        raise PermissionDenied  # all projects of the person are archived
    if request.method != "POST":
        return _show(request, _first_draft(request))
    draft = (StudyJsonDraft if request.POST.get("mode") == "json" else StudyDraft).from_post(request.POST)
    FormChoices.of(request).set_in(draft)
    valid = draft.is_valid()
    action = request.POST.get("action", "")
    if action == "paste" and isinstance(draft, StudyDraft):
        draft = draft.with_pasted_space()
        FormChoices.of(request).set_in(draft)
        draft.is_valid()
        return _show(request, draft, quiet=True)
    if action == "add":
        return _show(request, draft, quiet=True)
    return ACTIONS.get(action, _submit)(request, draft) if valid else _show(request, draft)


def _first_draft(request: HttpRequest) -> AnyStudyDraft:
    """What the form begins with: the sample, a copy of a study, or a study of a job."""
    by_json = request.GET.get("as") == "json"
    kind: type[StudyDraft] | type[StudyJsonDraft] = StudyJsonDraft if by_json else StudyDraft
    project = request.GET.get("project", "") or request.COOKIES.get(COOKIE, "")
    destination = JobDestination(project, "", _new_request_id())
    if "study" in request.GET or "continue" in request.GET:
        rows = TuningJob.objects.select_related("project")
        number = _number(request.GET.get("continue") or request.GET.get("study", ""))
        study = access.get_or_404(request.user, "see", rows, pk=number)
        place = replace(destination, project=study.project.name, location=study.location_name)
        document = continued_document(study) if "continue" in request.GET else study_document(study)
        return kind.from_document(document, place) if by_json else study_draft_of(document, place)
    if "job" in request.GET:
        jobs = Job.objects.select_related("project", "trial_row__tuning_job")
        job = access.get_or_404(request.user, "see", jobs, pk=_number(request.GET["job"]))
        place = replace(destination, project=job.project.name, location=job.location_name)
        name = _("{name}-study").format(name=job.display_name)[:MAX_NAME]
        return kind.from_document(
            {**EMPTY_STUDY, "displayName": name, "trialJobSpec": _spec_to_tune(job)}, place
        )
    return kind.from_document(SAMPLE_STUDY if "sample" in request.GET else EMPTY_STUDY, destination)


def _spec_to_tune(job: Job) -> dict[str, Any]:
    """What the trials of a new study run. The job of a trial has arguments and metrics of its own study, so that study
    says what it ran."""
    trial = getattr(job, "trial_row", None)
    spec: dict[str, Any] = job.spec if trial is None else trial.tuning_job.trial_spec
    return spec


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise Http404
    return int(text)


def _submit(request: HttpRequest, draft: AnyStudyDraft) -> HttpResponse:
    return _submit_to(request, draft, draft.destination)


def _submit_to(request: HttpRequest, draft: AnyStudyDraft, destination: JobDestination) -> HttpResponse:
    project = access.project_or_404(request.user, "submit", destination.project)
    who, document = person(request), draft.document()
    try:
        with transaction.atomic():
            made = tuning_jobs.create(
                project,
                who,
                document,
                destination.location,
                destination.request_id or None,
                timezone.now(),
                access.can(who, "prioritize", project),
            )
    except InvalidDocument as refused:
        return _show(request, draft, refused.violations)
    except services.Exhausted as full:
        return _show(request, draft, unavailable=shown(full.message), status=429)
    except services.Conflict:
        # The person changed a sent form after the browser's Back, and means another study.
        return _submit_to(request, draft, replace(destination, request_id=_new_request_id()))
    except services.Refused as refused_:
        return _show(request, draft, [Violation(refused_.field, refused_.message)])
    except services.Unavailable as unavailable:
        return _show(request, draft, unavailable=shown(unavailable.message), status=503)
    spec = parse_spec(made.trial_spec, of_location(made.location_name))
    for warning in study_advice(study_of(made), spec):
        messages.warning(request, shown(warning))
    return redirect("study", tuning_id=made.pk)


def _to_json(request: HttpRequest, draft: AnyStudyDraft) -> HttpResponse:
    return _show(request, StudyJsonDraft.from_document(draft.document(), draft.destination))


def _to_form(request: HttpRequest, draft: AnyStudyDraft) -> HttpResponse:
    """What has errors, or more than the fields can show, stays JSON: the form could lose a part of it."""
    try:
        document = _canonical(request, draft)
    except InvalidDocument as refused:
        return _show(request, draft, refused.violations)
    except services.Refused as refused_:
        return _show(request, draft, [Violation(refused_.field, refused_.message)])
    shown_as = study_draft_of(document, draft.destination)
    if isinstance(shown_as, StudyJsonDraft):
        messages.info(request, _("This study has more than the form can show. It stays JSON."))
    return _show(request, shown_as)


def _canonical(request: HttpRequest, draft: AnyStudyDraft) -> dict[str, Any]:
    """The document in its canonical spelling. Errors may name what a location has, so it has to serve the project."""
    project = access.project_or_404(request.user, "submit", draft.destination.project)
    locations.check_serves(project, draft.destination.location)
    return canonical_document(parse_tuning_job(draft.document(), of_location(draft.destination.location)))


ACTIONS: dict[str, Callable[[HttpRequest, AnyStudyDraft], HttpResponse]] = {
    "submit": _submit,
    "json": _to_json,
    "form": _to_form,
}


def _show(
    request: HttpRequest,
    draft: AnyStudyDraft,
    violations: Iterable[Violation] = (),
    unavailable: str = "",
    status: int = 200,
    quiet: bool = False,
) -> HttpResponse:
    """Show the form. `quiet`: without what is wrong, for a person who has not finished."""
    choices = FormChoices.of(request)
    choices.set_in(draft)
    # First, because a field with an error has no parsed document in which secrets could be found.
    draft.hide_secrets()
    draft.add_violations(violations)
    context = {
        **{"draft": draft, "unavailable": unavailable, "quiet": quiet, "curl": _curl(request, draft)},
        "summary": _summary(draft),
    }
    return page_or_fragment(
        request, f"studies/new_{draft.mode}.html", f"studies/_new_{draft.mode}.html", context, status
    )


@never_cache
@sensitive_post_parameters()
@require_POST
@login_required
def summary(request: HttpRequest) -> HttpResponse:
    """The summary below the form, after a change of the form."""
    access.require(request.user, "submit", Job)
    if not FormChoices.of(request).projects:
        raise PermissionDenied
    draft = StudyDraft.from_post(request.POST)
    FormChoices.of(request).set_in(draft)
    draft.is_valid()
    return render(request, "studies/_summary.html", {"summary": _summary(draft)})


def _summary(draft: AnyStudyDraft) -> StudySummary | None:
    if not isinstance(draft, StudyDraft):
        return None
    location = str(draft["location"].value() or "")
    if draft.is_bound:
        return study_summary.of(draft.document(), location)
    return study_summary.of(draft.first_document, location)


def _curl(request: HttpRequest, draft: AnyStudyDraft) -> str:
    """The request that submits what stands in the text of JSON."""
    if not isinstance(draft, StudyJsonDraft):
        return ""
    document = draft.document()
    place = [str(draft[name].value() or "") for name in ("project", "location")]
    base = settings.TRAINYARD.url or request.build_absolute_uri("/")
    return as_curl(document, place[0], place[1], base.rstrip("/")) if document else ""


def _new_request_id() -> str:
    """Sending a form twice with one id makes one study."""
    return f"form-{uuid.uuid4()}"
