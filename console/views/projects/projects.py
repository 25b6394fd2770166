"""Pages of projects: the list, one project with its members and limits, and the limits of new projects."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.forms.projects import (
    EACH,
    WHOLE,
    LimitForm,
    Member,
    NewProject,
    Settings,
    add_refusal,
    recording_choice,
)
from console.presenters.projects import projects as presenter
from console.views.confirmation import asked_again
from jobs.models import Membership, Project
from jobs.projects import members, quotas
from jobs.projects import projects as service
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric


@require_safe
@login_required
def projects(request: HttpRequest) -> HttpResponse:
    context = {
        "projects": presenter.project_list(person(request)),
        "may_make": access.can(request.user, "configure", Project),
    }
    return render(request, "projects/list.html", context)


@require_http_methods(["GET", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "configure", Project)
    form = NewProject(request.POST or None)
    if request.method == "POST" and form.is_valid():
        who, now = person(request).username, timezone.now()
        try:
            with transaction.atomic():
                row = service.create(form.cleaned_data["name"], form.cleaned_data["title"], who, now)
        except Refused as refused:
            add_refusal(form, refused)
        else:
            messages.success(
                request, _("Project {name} is created. Add its members below.").format(name=row.name)
            )
            return redirect("project", project=row.name)
    return render(request, "projects/new.html", {"form": form})


@require_safe
@login_required
def project(request: HttpRequest, project: str) -> HttpResponse:
    return _page(request, access.project_or_404(request.user, "see", project))


@require_POST
@login_required
def settings(request: HttpRequest, project: str) -> HttpResponse:
    row = access.project_or_404(request.user, "configure", project)
    form = Settings(request.POST)
    if not form.is_valid():
        return _page(request, row, settings=form)
    try:
        with transaction.atomic():
            changed = service.change(row, person(request).username, timezone.now(), **form.changes())
    except Refused as refused:
        add_refusal(form, refused)
        return _page(request, row, settings=form)
    messages.success(request, _("Saved."))
    return redirect("project", project=changed.name)


@require_POST
@login_required
def archive(request: HttpRequest, project: str) -> HttpResponse:
    row = access.project_or_404(request.user, "configure", project)
    restore = request.POST.get("undo") == "1"
    with transaction.atomic():
        (service.restore if restore else service.archive)(row, person(request).username, timezone.now())
    text = (
        _("{name} takes jobs again.")
        if restore
        else _("{name} is archived. It takes no new jobs, and its running jobs go on.")
    )
    messages.success(request, text.format(name=row.name))
    return redirect("project", project=row.name)


@require_POST
@login_required
def set_member(request: HttpRequest, project: str) -> HttpResponse:
    """Add a member, or change the role of a member."""
    row = access.project_or_404(request.user, "manage_members", project)
    form = Member(request.POST)
    if not form.is_valid():
        return _page(request, row, member=form)
    role = form.cleaned_data["role"]
    try:
        user = members.person_named(form.cleaned_data["user"])
    except Refused as refused:
        add_refusal(form, refused)
        return _page(request, row, member=form)
    gives = members.makes_admin(row, user, role)
    if gives and (
        page := asked_again(
            request, _("make {user} an admin of {project}").format(user=user.username, project=row.name)
        )
    ):
        return page
    with transaction.atomic():
        members.set_role(row, user, role, person(request).username, timezone.now())
    messages.success(
        request, _("{username} is {role} of {name}.").format(username=user.username, role=role, name=row.name)
    )
    return _back(request, row)


@require_POST
@login_required
def remove_member(request: HttpRequest, project: str, user_id: int) -> HttpResponse:
    row = access.project_or_404(request.user, "manage_members", project)
    member = Membership.objects.select_related("user").filter(project=row, user=user_id).first()
    if member is not None:
        with transaction.atomic():
            members.remove(row, member.user, person(request).username, timezone.now())
        messages.success(
            request,
            _("{username} is not in {name} any more.").format(username=member.user.username, name=row.name),
        )
    return _back(request, row)


@require_POST
@login_required
def set_quota(request: HttpRequest, project: str) -> HttpResponse:
    """Set a limit. Admins of the project limit members; admins of the deployment also limit the whole project."""
    row = access.project_or_404(request.user, "manage_members", project)
    form = _limit_form(request, row, request.POST)
    # The form has only the choices that the person may change, and refuses others.
    if form.is_valid() and _set(request, form, _target(row, form.cleaned_data["whose"])):
        return redirect("project", project=row.name)
    return _page(request, row, limit=form)


@require_http_methods(["GET", "POST"])
@login_required
def default_quotas(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "set_quotas", Project)
    form = LimitForm(request.POST or None, initial=request.GET.dict())
    form.set_choices(True, ())
    if request.method == "POST" and form.is_valid():
        target = QuotaTarget(None, each=form.cleaned_data["whose"] == EACH)
        if _set(request, form, target):
            return redirect("default-quotas")
    whole, each = presenter.defaults()
    context = {"form": form, "whole": whole, "each": each, "gpu_types": presenter.gpu_types()}
    return render(request, "admin/quotas.html", context)


def _set(request: HttpRequest, form: LimitForm, target: QuotaTarget) -> bool:
    typed = form.cleaned_data
    metric = Metric(typed["metric"])
    kind = typed["accelerator_type"].strip() if metric == Metric.GPUS else ""
    try:
        with transaction.atomic():
            quotas.set_limit(target, metric, kind, typed["limit"], person(request).username, timezone.now())
    except Refused as refused:
        add_refusal(form, refused)
        return False
    text = (
        _("{whose}, {what}: no limit any more.")
        if typed["limit"] is None
        else _("{whose}, {what}: at most {limit}.")
    )
    what = kind or shown(quotas.METRIC_LABELS[metric])
    messages.success(
        request, text.format(whose=shown(target.label), what=what, limit=f"{typed['limit'] or 0:g}")
    )
    return True


def _target(project: Project, whose: str) -> QuotaTarget:
    if whose in (WHOLE, EACH):
        return QuotaTarget(project, each=whose == EACH)
    member = Membership.objects.select_related("user").get(project=project, user__username=whose)
    return QuotaTarget(project, user=member.user)


def _limit_form(request: HttpRequest, project: Project, data: object = None) -> LimitForm:
    form = LimitForm(data, initial=request.GET.dict())  # type: ignore[arg-type]
    names = Membership.objects.filter(project=project).order_by("user__username")
    may_set = access.can(request.user, "set_quotas", project)
    form.set_choices(may_set, names.values_list("user__username", flat=True))
    return form


def _page(
    request: HttpRequest,
    row: Project,
    settings: Settings | None = None,
    member: Member | None = None,
    limit: LimitForm | None = None,
) -> HttpResponse:
    page = presenter.page(row, person(request))
    known = {name: getattr(row, name) for name in service.CHANGEABLE} | {
        "weight": f"{row.weight:g}",
        "record_shells": recording_choice(row.record_shells),
    }
    context = {
        "page": page,
        "project": row,
        "settings": settings or Settings(initial=known),
        "member": member or Member(),
        "limit": limit or _limit_form(request, row),
        "roles": members.ROLES,
    }
    return render(request, "projects/project.html", context)


def _back(request: HttpRequest, row: Project) -> HttpResponse:
    """Go back to the project, or to the list if the person has given up their own role and may not see the project."""
    return (
        redirect("project", project=row.name)
        if access.can(request.user, "see", row)
        else redirect("projects")
    )
