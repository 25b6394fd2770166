"""Files of a replica: what its program, or a debugger in a shell, has written into its work directory.

Whoever may open a shell there may read them.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from agents.infra import sentences
from console.auth import access
from console.auth.person import person
from console.presenters.shells import file_list
from console.presenters.shells.file_list import download
from jobs.models import Job, Replica
from jobs.outputs import work_directories


@require_safe
@login_required
def job_files(request: HttpRequest, job_id: int, replica: str) -> HttpResponse:
    job, row = _replica(request, job_id, replica)
    path = request.GET.get("path", "").strip("/")
    status, problem, shown = 200, "", None
    try:
        found = work_directories.list_directory(job, row, path, _share(request))
        shown = file_list.rows(job.pk, replica, path, found)
    except work_directories.Busy:
        status, problem = 503, _("Several files are being fetched at the moment. Try again in a moment.")
    except work_directories.PROBLEMS as refused:
        problem = sentences.shown(refused.args[0])
    up = file_list.parent(job.pk, replica, path)
    context = {"job": job, "replica": replica, "path": path, "files": shown, "problem": problem, "up": up}
    return render(request, "shells/files.html", context, status=status)


@require_safe
@login_required
def job_file(request: HttpRequest, job_id: int, replica: str) -> HttpResponseBase:
    job, row = _replica(request, job_id, replica)
    path = request.GET.get("path", "").strip("/")
    try:
        found = work_directories.open_file(job, row, path, _share(request))
    except work_directories.Busy:
        status, problem = 503, _("Several files are being fetched at the moment. Try again in a moment.")
    except work_directories.PROBLEMS as refused:
        status, problem = 409, sentences.shown(refused.args[0])
    else:
        return download(found, path, found.size)
    up = file_list.parent(job.pk, replica, path)
    context = {"job": job, "replica": replica, "path": path, "problem": problem, "up": up}
    return render(request, "shells/files.html", context, status=status)


def _share(request: HttpRequest) -> str:
    return str(person(request).pk)


def _replica(request: HttpRequest, job_id: int, replica: str) -> tuple[Job, Replica]:
    job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=job_id)
    return job, get_object_or_404(Replica.objects.filter(job=job), name=replica)
