"""What is done to a job's shells, and the page of a shell. Its bytes come over a socket (console/consumers), which
checks permissions itself.
"""

from __future__ import annotations

from contextlib import suppress

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from agents.infra.texts import said
from agents.ssh import keys, pty
from agents.ssh.targets import Target
from console.auth import access
from console.auth.person import person
from console.presenters.shells import job_shells
from jobs import shells
from jobs.models import Job, Run, ShellSession
from jobs.recordings import policy


@require_safe
@login_required
def new_shell(request: HttpRequest, job_id: int) -> HttpResponse:
    """Go to the page of a new shell in the replica that the form names."""
    job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=job_id)
    replica = request.GET.get("replica", "")
    for run in job_shells.open_runs(job):
        if run.replica.name == replica:
            return redirect("shell", job_id=job_id, run_id=run.pk)
    messages.error(
        request, _("{replica} does not run now, so no shell opens there.").format(replica=replica[:40])
    )
    return redirect("job-shells", job_id=job_id)


@require_POST
@login_required
def close_shell(request: HttpRequest, job_id: int, key: str) -> HttpResponse:
    """Have its host end a shell, as the page of the shell can."""
    session = _session(request, job_id, key)
    shells.want_close(session, said("Closed by {name}.", name=person(request).get_username()), timezone.now())
    return redirect("job-shells", job_id=job_id)


@require_POST
@login_required
def share_shell(request: HttpRequest, job_id: int, key: str) -> HttpResponse:
    """Let colleagues watch a shell, or stop that."""
    session = _session(request, job_id, key)
    name = person(request).get_username()
    shells.share(session, request.POST.get("shared") == "1", name, timezone.now())
    return redirect("job-shells", job_id=job_id)


def _session(request: HttpRequest, job_id: int, key: str) -> ShellSession:
    job = access.get_or_404(request.user, "shell", Job.objects.select_related("project"), pk=job_id)
    session = shells.of_job(job).select_related("run__job__project").filter(key=key, closed_at=None).first()
    if session is None:
        raise Http404
    return session


@require_safe
@login_required
def shell(request: HttpRequest, job_id: int, run_id: str) -> HttpResponse:
    rows = Run.objects.select_related("job__project", "host", "replica").filter(job=job_id)
    key = request.GET.get("shell", "")
    # A shell that its owner shares may be watched by more people than may have one.
    is_shared = shells.is_shared(run_id, key)
    run = access.get_or_404(request.user, "watch_shell" if is_shared else "shell", rows, pk=run_id)
    if request.method == "GET":  # a page that may not have its socket asks with HEAD for the reason
        _prepare(run, key)
    may_type = access.can(request.user, "shell", run)
    context = {
        "job": run.job,
        "run": run,
        "replica": run.replica.name,
        "host": run.host.name,
        "run_id": run.pk,
        "keep_minutes": settings.TRAINYARD.shell_keep_s // 60,
        "recording_days": policy.kept_days(),
        "may_type": may_type,
        "here": [row for row in job_shells.open_shells(run.job, person(request)) if row.key],
        "runs": job_shells.open_names(run.job) if may_type else [],
    }
    response = render(request, "shells/shell.html", context)
    response.inline_styles = True  # type: ignore[attr-defined]  # xterm.js writes a style element of its own
    return response


def _prepare(run: Run, key: str) -> None:
    """Have the host dialled while the page loads: its socket comes next, if it comes to this process."""
    if shells.why_not(run) is None:
        with suppress(keys.KeyUnreadable):  # the socket says it
            pty.prepare_shell(Target.of(run.host), keys.private_key(), is_new=not shells.is_on_host(key))
