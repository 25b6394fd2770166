"""Pages of stored files: what a project stores, one folder of a bucket, uploads, downloads, deletion."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents.infra.refusals import Refused, Unavailable
from agents.infra.sentences import shown
from console import large_bodies
from console.auth import access
from console.auth.person import person
from console.forms.storage import KeepDays, NewArtifact, NewBucket, NewObject
from console.large_bodies import BodyWanted, Received
from console.presenters.storage import download, storage_page
from console.views.fragments import page_or_fragment
from jobs.artifacts import artifacts, blobs, buckets, expiry, incoming, objects
from jobs.artifacts.objects import About
from jobs.models import Artifact, Bucket, Project, StoredObject


@require_safe
@login_required
def storage(request: HttpRequest, project: str) -> HttpResponse:
    return _storage(request, access.project_or_404(request.user, "see_files", project))


def _storage(request: HttpRequest, row: Project, status: int = 200, **forms: object) -> HttpResponse:
    context = {
        "project": row,
        "page": storage_page.page(row, person(request)),
        "new_bucket": NewBucket(),
        "new_artifact": NewArtifact(),
        **forms,
    }
    return render(request, "storage/storage.html", context, status=status)


@require_POST
@login_required
def add_bucket(request: HttpRequest, project: str) -> HttpResponse:
    row = access.project_or_404(request.user, "store", project)
    form = NewBucket(request.POST)
    if form.is_valid():
        try:
            with transaction.atomic():
                made = buckets.create(
                    row, form.cleaned_data["name"], person(request).username, timezone.now()
                )
        except Refused as refused:
            form.add_error("name", shown(refused.message))
        else:
            messages.success(request, _("Bucket {name} is there.").format(name=made.name))
            return redirect("bucket", row.name, made.name)
    return _storage(request, row, 400, new_bucket=form)


@require_POST
@login_required
def add_artifact(request: HttpRequest, project: str) -> HttpResponse:
    """A file for jobs, from a plain form. Scripts send it to the REST address, which shows how far it is."""
    row = access.project_or_404(request.user, "store", project)
    if large_bodies.is_first_call(request):
        return BodyWanted(incoming.new_file(row), as_form=True)
    form = NewArtifact(request.POST, request.FILES)
    if _is_taken(request, row, form, lambda: _keep_artifact(request, row, form)):
        return redirect("project-storage", row.name)
    return _storage(request, row, 400, new_artifact=form)


def _keep_artifact(request: HttpRequest, row: Project, form: NewArtifact) -> str:
    file = form.cleaned_data["file"]
    made = artifacts.add_artifact(
        row, form.cleaned_data["kind"], file.name, file.chunks(), person(request).username
    )
    return made.name


@require_safe
@login_required
def bucket(request: HttpRequest, project: str, bucket: str) -> HttpResponse:
    return _bucket(request, _bucket_or_404(request, "see_files", project, bucket))


def _bucket(request: HttpRequest, row: Bucket, status: int = 200, **forms: object) -> HttpResponse:
    prefix = request.GET.get("prefix", "") or (
        request.POST.get("folder", "") if request.method == "POST" else ""
    )
    context = {
        "project": row.project,
        "bucket": row,
        "prefix": prefix,
        "page": storage_page.bucket_page(row, person(request), prefix, request.GET.get("page", "")),
        "new_object": NewObject(initial={"folder": prefix}),
        "keep_days": KeepDays(initial={"keep_days": row.keep_days}),
        **forms,
    }
    return render(request, "storage/bucket.html", context, status=status)


@require_POST
@login_required
def change_bucket(request: HttpRequest, project: str, bucket: str) -> HttpResponse:
    row = _bucket_or_404(request, "manage", project, bucket)
    form = KeepDays(request.POST)
    if not form.is_valid():
        return _bucket(request, row, 400, keep_days=form)
    with transaction.atomic():
        expiry.set_rule(row, form.cleaned_data["keep_days"], person(request).username, timezone.now())
    messages.success(request, _("Saved."))
    return redirect("bucket", row.project.name, row.name)


@require_POST
@login_required
def add_object(request: HttpRequest, project: str, bucket: str) -> HttpResponse:
    row = _bucket_or_404(request, "store", project, bucket)
    if large_bodies.is_first_call(request):
        return BodyWanted(incoming.new_file(row.project), as_form=True)
    form = NewObject(request.POST, request.FILES)
    if _is_taken(request, row.project, form, lambda: _keep_object(request, row, form)):
        return redirect(storage_page.folder_url(row, form.cleaned_data["folder"]))
    return _bucket(request, row, 400, new_object=form)


def _keep_object(request: HttpRequest, row: Bucket, form: NewObject) -> str:
    file, prefix = form.cleaned_data["file"], form.cleaned_data["folder"]
    name = f"{prefix}{file.name}"
    objects.check(row, name, About(file.content_type or ""))
    made = objects.put_object(
        row.project, row.name, name, file.chunks(), file.content_type or "", by=person(request).username
    )
    return made.name


def _is_taken(
    request: HttpRequest, row: Project, form: NewArtifact | NewObject, keep: Callable[[], str]
) -> bool:
    """Store what the form has. False where it is refused: the form says why."""
    received = getattr(request, large_bodies.RECEIVED, None)
    try:
        if isinstance(received, Received):
            large_bodies.check_complete(received)
            # Its file is kept in another one, which reserves what it takes.
            large_bodies.release(received)
        if not form.is_valid():
            return False
        blobs.check_announced(row, form.cleaned_data["file"].size)
        name = keep()
    except (Refused, Unavailable) as refused:
        form.full_clean()
        form.add_error("file", shown(refused.message))
        return False
    messages.success(request, _("{name} is stored.").format(name=name))
    return True


@require_safe
@login_required
def artifact_file(request: HttpRequest, project: str, sha256: str) -> HttpResponseBase:
    row = _artifact_or_404(request, "see_files", project, sha256)
    return download.of_blob(row.blob, row.name, request.headers.get("Range", ""))


@require_safe
@login_required
def object_file(request: HttpRequest, project: str, bucket: str, name: str) -> HttpResponseBase:
    row = _object_or_404(request, "see_files", project, bucket, name)
    return download.of_blob(row.blob, row.name, request.headers.get("Range", ""))


ASKS = ["GET", "HEAD", "POST"]


@require_http_methods(ASKS)
@login_required
def delete_artifact(request: HttpRequest, project: str, sha256: str) -> HttpResponse:
    row = access.project_or_404(request.user, "store", project)
    return _asked(request, artifacts.find_artifact(row, sha256), resolve_url("project-storage", project))


@require_http_methods(ASKS)
@login_required
def delete_bucket(request: HttpRequest, project: str, bucket: str) -> HttpResponse:
    row = access.project_or_404(request.user, "store", project)
    return _asked(request, buckets.find(row, bucket), resolve_url("project-storage", project))


@require_http_methods(ASKS)
@login_required
def delete_object(request: HttpRequest, project: str, bucket: str, name: str) -> HttpResponse:
    row = _bucket_or_404(request, "store", project, bucket)
    folder, slash, _rest = name.rstrip("/").rpartition("/")
    return _asked(request, objects.in_bucket(row, name), storage_page.folder_url(row, folder + slash))


def _asked(request: HttpRequest, what: Artifact | StoredObject | Bucket | None, back: str) -> HttpResponse:
    """Ask whether to delete it; delete it when that was answered. What has gone already is as wanted."""
    if request.method == "POST":
        if what is not None:
            _delete(request, what)
        return redirect(back)
    if what is None:
        raise Http404
    context = {"name": str(what), "back": back, "is_bucket": isinstance(what, Bucket)}
    return page_or_fragment(request, "storage/delete.html", "storage/_delete.html", context)


def _delete(request: HttpRequest, what: Artifact | StoredObject | Bucket) -> None:
    by, now = person(request).username, timezone.now()
    try:
        with transaction.atomic():
            if isinstance(what, Artifact):
                artifacts.delete_artifact(what, by, now)
            elif isinstance(what, StoredObject):
                objects.delete_object(what, by, now)
            else:
                buckets.delete(what, by, now)
    except Refused as refused:
        messages.error(request, shown(refused.message))
    else:
        messages.success(request, _("{name} is deleted.").format(name=what))


def _bucket_or_404(request: HttpRequest, verb: access.Verb, project: str, name: str) -> Bucket:
    row = buckets.find(access.project_or_404(request.user, verb, project), name)
    if row is None:
        raise Http404
    return row


def _object_or_404(
    request: HttpRequest, verb: access.Verb, project: str, bucket: str, name: str
) -> StoredObject:
    row = objects.in_bucket(_bucket_or_404(request, verb, project, bucket), name)
    if row is None:
        raise Http404
    return row


def _artifact_or_404(request: HttpRequest, verb: access.Verb, project: str, sha256: str) -> Artifact:
    row = artifacts.find_artifact(access.project_or_404(request.user, verb, project), sha256)
    if row is None:
        raise Http404
    return row
