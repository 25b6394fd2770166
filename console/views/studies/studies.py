"""The list of studies and the pages of one; cancel and delete it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.sentences import shown
from console.auth import access
from console.auth.access import Verb
from console.auth.person import person
from console.forms.studies import ExtendStudyForm
from console.presenters.badges import JOB
from console.presenters.studies import (
    parameter_plots,
    scatter_matrix,
    study_cost,
    study_curves,
    study_document,
    study_list,
    study_page,
    study_parts,
    trial_files,
    trial_times,
)
from console.presenters.studies.drawn_body import drawn_body
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow
from console.views.fragments import asks_for_fragment, page_or_fragment
from console.views.projects.switch import chosen_list
from jobs.models import Job, TuningJob
from jobs.services import Refused
from jobs.tuning import tuning_jobs


@require_safe
@login_required
def studies(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    context = {
        "noun": "studies",
        "list": study_list.study_list(person(request), request.GET.dict()),
        "states": JOB.values(),
        "may_submit": access.can(request.user, "submit", Job),
    }
    return page_or_fragment(request, "studies/list.html", "parts/filtered_list.html", context)


@require_safe
@login_required
def overview(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    if asks_for_fragment(request):
        asked = request.GET.dict()
        body = drawn_body(study, read_trials(study), asked)
        context = {"body": body, "tabs": study_page.tabs(study, study_page.OVERVIEW, asked)}
        return page_or_fragment(request, "studies/study.html", "studies/_fragment.html", context)
    may_extend = access.can(request.user, "cancel", study)
    return show(request, study, ExtendStudyForm.of(study) if may_extend else None)


def show(request: HttpRequest, study: TuningJob, extend: ExtendStudyForm | None) -> HttpResponse:
    """The first page of a study. `extend`: the form that gives it more trials, for those who may."""
    trials = read_trials(study)
    context = {
        "body": drawn_body(study, trials, request.GET.dict()),
        "cost": study_cost.study_cost(study, trials, request.GET.dict()),
        "extend": extend,
        **_around(request, study, study_page.OVERVIEW, trials),
    }
    return page_or_fragment(request, "studies/study.html", "studies/_fragment.html", context)


@require_safe
@login_required
def parameters(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    asked = request.GET.dict()
    context: dict[str, Any] = {"parameters": parameter_plots.parameter_plots(study, asked)}
    if asks_for_fragment(request):
        context["tabs"] = study_page.tabs(study, study_page.PARAMETERS, asked)
    else:
        context |= _around(request, study, study_page.PARAMETERS)
    return page_or_fragment(request, "studies/parameters.html", "studies/_parameters_fragment.html", context)


@require_safe
@login_required
def contour(request: HttpRequest, tuning_id: int) -> HttpResponse:
    """A page of its own without scripts; the tab Parameters asks for it as a fragment."""
    study = found(request, tuning_id)
    context = study_parts.contour_context(study, request.GET.dict())
    if not asks_for_fragment(request):
        context |= _around(request, study, study_page.PARAMETERS)
    return page_or_fragment(request, "studies/contour.html", "studies/_contour.html", context)


@require_safe
@login_required
def curves(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    context = {
        **_around(request, study, study_page.CURVES),
        "curves": study_curves.study_curves(study, request.GET.dict()),
    }
    return render(request, "studies/curves.html", context)


@require_safe
@login_required
def scatter(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    drawn = scatter_matrix.scatter_matrix(study, request.GET.dict())
    context = {**_around(request, study, study_page.SCATTER), "scatter": drawn}
    return render(request, "studies/scatter.html", context)


@require_safe
@login_required
def timeline(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    drawn = trial_times.trial_times(study, request.GET.dict())
    context = {**_around(request, study, study_page.TIMELINE), "times": drawn}
    return render(request, "studies/timeline.html", context)


@require_safe
@login_required
def spec(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    document = study_document.exported_document(study)
    if request.GET.get("as") == "json":
        return _file(json.dumps(document, indent=2), "application/json", f"study-{study.pk}.json")
    context = {
        **_around(request, study, study_page.SPEC),
        "facts": study_page.facts(study),
        "document": study_document.as_text(document),
    }
    return render(request, "studies/spec.html", context)


@require_safe
@login_required
def trials_csv(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    text = trial_files.csv_of(study, request.GET.dict())
    return _file(text, "text/csv; charset=utf-8", f"study-{study.pk}-trials.csv")


@require_safe
@login_required
def trials_json(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id)
    text = trial_files.json_of(study, request.GET.dict())
    return _file(text, "application/json", f"study-{study.pk}-trials.json")


def _file(text: str, kind: str, name: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@require_POST
@login_required
def cancel(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id, "cancel")
    with transaction.atomic():
        tuning_jobs.cancel(study, person(request).username, timezone.now())
    return redirect("study", tuning_id=tuning_id)


@require_POST
@login_required
def delete(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id, "delete")
    try:
        with transaction.atomic():
            tuning_jobs.delete(study, person(request).username, timezone.now())
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect("study", tuning_id=tuning_id)
    messages.success(
        request,
        _("“{display_name}” is deleted. The jobs of its trials stay.").format(
            display_name=study.display_name
        ),
    )
    return redirect("studies")


def _around(
    request: HttpRequest, study: TuningJob, tab: str, trials: Sequence[TrialRow] | None = None
) -> dict[str, Any]:
    """What stands around each tab. `trials`: all of the study, where they are read already."""
    tabs = study_page.tabs(study, tab, request.GET.dict())
    current = next(each for each in tabs if each.current)
    return {"head": study_page.head(study, person(request), trials), "tabs": tabs, "tab": current}


def found(request: HttpRequest, tuning_id: int, verb: Verb = "see") -> TuningJob:
    """The study, for somebody who may do this to it."""
    rows = TuningJob.objects.select_related("project")
    return access.get_or_404(request.user, verb, rows, pk=tuning_id)
