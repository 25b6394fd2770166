"""The pages of training pipelines and of the models that they left."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.presenters import trained_models as pages
from console.views.projects.switch import chosen_list
from jobs.models import Job, ModelVersion, RegisteredModel
from jobs.pipelines import registry


@require_safe
@login_required
def pipelines(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    found = pages.pipeline_rows(person(request), request.GET.dict())
    return render(request, "models/pipelines.html", {"found": found, "may_train": _may_train(request)})


@require_safe
@login_required
def models(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    found = pages.model_rows(person(request), request.GET.dict())
    return render(request, "models/list.html", {"found": found, "may_train": _may_train(request)})


@require_safe
@login_required
def model(request: HttpRequest, project: str, model_id: str) -> HttpResponse:
    row = _model(request, "see", project, model_id)
    return render(request, "models/model.html", {"page": pages.model_page(person(request), row)})


@require_POST
@login_required
def make_default(request: HttpRequest, project: str, model_id: str, number: int) -> HttpResponse:
    version = _version(_model(request, "submit", project, model_id), number)
    registry.change_aliases(version, [registry.DEFAULT], timezone.now())
    messages.success(request, _("Version {number} is the default now.").format(number=number))
    return redirect("model", project, model_id)


@require_POST
@login_required
def delete_version(request: HttpRequest, project: str, model_id: str, number: int) -> HttpResponse:
    version = _version(_model(request, "see", project, model_id), number)
    access.require(request.user, "delete", version.job)
    try:
        registry.delete_version(version, person(request).get_username(), timezone.now())
        messages.success(request, _("Version {number} is deleted. Its files stay.").format(number=number))
    except Refused as refused:
        messages.error(request, shown(refused.message))
    return redirect("model", project, model_id)


@require_POST
@login_required
def delete_model(request: HttpRequest, project: str, model_id: str) -> HttpResponse:
    row = _model(request, "see", project, model_id)
    for version in ModelVersion.objects.filter(model=row).select_related("job"):
        access.require(request.user, "delete", version.job)
    registry.delete_model(row, person(request).get_username(), timezone.now())
    messages.success(request, _("The model {name} is deleted. Its files stay.").format(name=model_id))
    return redirect("models")


def _may_train(request: HttpRequest) -> bool:
    return access.can(request.user, "submit", Job)


def _model(request: HttpRequest, verb: access.Verb, project: str, model_id: str) -> RegisteredModel:
    tenant = access.project_or_404(request.user, verb, project)
    rows = RegisteredModel.objects.select_related("project")
    found = rows.filter(project=tenant, model_id=model_id).first()
    if found is None:
        raise Http404
    return found


def _version(model: RegisteredModel, number: int) -> ModelVersion:
    found = ModelVersion.objects.select_related("job", "model").filter(model=model, number=number).first()
    if found is None:
        raise Http404
    return found
