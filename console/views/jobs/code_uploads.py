"""Code that a form brings without scripts: its archive is stored, and the form is shown again with it."""

from __future__ import annotations

from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console import large_bodies
from console.auth import access
from console.auth.person import person
from console.forms.code_fields import STORED
from console.forms.storage import NewCode
from console.large_bodies import BodyWanted, Received
from jobs import services
from jobs.artifacts import artifacts, blobs, incoming, room
from jobs.models import Artifact, ArtifactKind, Project


def body_wanted(request: HttpRequest) -> BodyWanted:
    """The answer to the first call. The project is in the body, so its quota is looked at when that has come."""
    stores = list(_projects(request).values())
    free = [room.free_bytes(row) for row in stores]
    file = incoming.new_file(None, None if None in free else max(filter(None, free), default=0))
    # Of one person's uploads it is not known yet to which of several projects they go.
    file.share = (
        incoming.share_of_project(stores[0].pk)
        if len(stores) == 1
        else incoming.share_of_person(person(request).pk)
    )
    return BodyWanted(file, as_form=True)


def stored_code(request: HttpRequest) -> tuple[QueryDict, list[str]]:
    """Store the archive of the form. Returns the form with it, and what is wrong with the upload."""
    data, project = request.POST.copy(), _projects(request).get(request.POST.get("project", ""))
    if project is None:
        stored, problems = None, [_("Choose a project first.")]
    else:
        stored, problems = _stored(request, project)
    data["code-source"] = STORED
    if stored is not None:
        data["code-stored"] = stored.sha256
    return data, problems


def _projects(request: HttpRequest) -> dict[str, Project]:
    return {row.name: row for row in access.projects_allowing(person(request), "store")}


def _stored(request: HttpRequest, project: Project) -> tuple[Artifact | None, list[str]]:
    """The archive that the form has, or what is wrong with it."""
    received = getattr(request, large_bodies.RECEIVED, None)
    try:
        if isinstance(received, Received):
            large_bodies.check_complete(received)
        form = NewCode(request.POST, request.FILES, prefix="code")
        if not form.is_valid():
            return None, [str(error) for error in form.errors["file"]]
        file = form.cleaned_data["file"]
        blobs.check_announced(project, file.size)
        by = person(request).username
        return artifacts.add_artifact(project, ArtifactKind.ARCHIVE, file.name, file.chunks(), by), []
    except (services.Refused, services.Unavailable) as refused:
        return None, [shown(refused.message)]
