"""The tabs of a job's page: overview, metrics, shells, specification and events. Those with logs are in logs.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.auth import access
from console.auth.access import Verb
from console.auth.person import person
from console.presenters.jobs import job_page, job_parts, requested
from console.presenters.jobs.job_query import JobQuery
from console.presenters.jobs.last_lines import last_lines
from console.presenters.jobs.logs_together import MAX_REPLICAS
from console.presenters.jobs.replica_picker import picker
from console.presenters.jobs.replicas import ReplicaLine
from console.presenters.metrics.metrics_page import metrics_panel
from console.views.fragments import asks_for_fragment, page_or_fragment
from jobs.models import Job


@require_safe
@login_required
def overview(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    exchanged = asks_for_fragment(request)
    parts = ("job-replicas", "job-story") if exchanged else job_parts.OVERVIEW
    context = _context(request, job, job_page.OVERVIEW, *parts)
    page = context["page"] = context.get("page") or _page(request, job, job_page.OVERVIEW, context["lines"])
    context["shown"] = page.replica or _first_log(job, request, context) or page.names[0]
    if not exchanged:
        context["advice"] = requested.advice_of(job)
    return page_or_fragment(request, "jobs/job.html", "jobs/_cells_exchange.html", context)


def _first_log(job: Job, request: HttpRequest, context: dict[str, Any]) -> str:
    """The replica that failed first: its log is shown where none is chosen."""
    if "head" in context:
        failed = context["head"].last_lines
    else:
        failed = last_lines(job) if access.can(request.user, "see_log", job) else None
    return failed.replica if failed else ""


@require_safe
@login_required
def replicas(request: HttpRequest, job_id: int) -> HttpResponse:
    """Choose a replica: a list for htmx, which opens it beside a log; a page for a browser without scripts."""
    job = _job(request, job_id)
    allowed = access.verbs(request.user, job)
    asked = request.GET
    found = picker(
        job,
        allowed,
        asked.get("text", "")[:80],
        asked.get("to", ""),
        asked.getlist("replicas")[:MAX_REPLICAS],
    )
    context = {**_context(request, job, found.to, "job-head"), "picker": found}
    return page_or_fragment(request, "jobs/picker.html", "jobs/_picker_list.html", context)


@require_safe
@login_required
def metrics(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    if asks_for_fragment(request):
        context = _context(request, job, job_page.METRICS, "job-metrics")
    else:
        panel = metrics_panel(job, request.GET, timezone.now())
        context = _context(
            request, job, job_page.METRICS, "job-head", "job-metrics", "job-points", "job-reports"
        )
        context["metrics"] = panel
    return page_or_fragment(request, "jobs/metrics.html", "jobs/_metrics_exchange.html", context)


@require_safe
@login_required
def shells(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id, "watch_shell")
    return render(
        request, "jobs/shells.html", _context(request, job, job_page.SHELLS, "job-head", "job-shells")
    )


@require_safe
@login_required
def spec(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    if request.GET.get("as") == "json":
        answer = HttpResponse(requested.document(job), content_type="application/json")
        answer["Content-Disposition"] = f'attachment; filename="job-{job.pk}.json"'
        return answer
    context = _context(request, job, job_page.SPEC, "job-head")
    return render(request, "jobs/spec.html", {**context, "spec": requested.spec(job)})


@require_safe
@login_required
def events(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(request, job_id)
    context = _context(request, job, job_page.EVENTS, "job-head", "job-events")
    return page_or_fragment(request, "jobs/events.html", "jobs/_events_exchange.html", context)


@require_safe
@login_required
def history(request: HttpRequest, job_id: int) -> HttpResponse:
    """The address that the events had before the page had tabs."""
    _job(request, job_id)
    answer = redirect("job-events", job_id=job_id)
    query = request.META.get("QUERY_STRING", "")
    answer["Location"] += f"?{query}" if query else ""
    return answer


def _job(request: HttpRequest, job_id: int, verb: Verb = "see") -> Job:
    return access.get_or_404(request.user, verb, Job.objects.select_related("project"), pk=job_id)


def _context(request: HttpRequest, job: Job, tab: str, *parts: str) -> dict[str, Any]:
    """The values of the parts of a tab. A request of htmx exchanges a part, and needs nothing around it."""
    query = request.GET.dict()
    if several := request.GET.getlist("replicas"):
        query["replicas"] = ",".join(several)
    context = job_parts.context(parts, job, person(request), query)
    if not asks_for_fragment(request):
        context["page"] = _page(request, job, tab, context.get("lines"))
    return context


def _page(request: HttpRequest, job: Job, tab: str, lines: Sequence[ReplicaLine] | None) -> job_page.JobPage:
    return job_page.page(job, person(request), tab, JobQuery.from_query(request.GET).replica, lines)
