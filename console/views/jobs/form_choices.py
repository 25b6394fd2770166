"""What the new-job form offers to a person: projects, locations, machine types, GPUs and stored secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest

from agents.hosts import adding
from console.auth import access
from console.auth.person import person
from console.forms.fields import without_folded_rows
from console.forms.jobs import AnyDraft, Draft, JsonDraft
from console.forms.studies import AnyStudyDraft
from console.presenters.new_job import preview
from console.views.fragments import asks_for_fragment
from jobs.artifacts import artifacts
from jobs.models import Artifact, ArtifactKind, Project
from jobs.projects import locations
from jobs.rules.spec import reduction
from jobs.secrets import store

# Where the choices are kept while a request is answered.
_KEPT = "new_job_choices"
ARCHIVES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A stored secret as the form offers it. Without a project it is the person's own."""

    name: str
    project: str


@dataclass(frozen=True, slots=True)
class FormChoices:
    """`projects`: those to which the person may submit, by name. `open_locations`: those that serve one of them, the
    default one first. `by_script`: a script asks, and adds rows where they are wanted."""

    user: User
    projects: Mapping[str, Project]
    open_locations: tuple[str, ...]
    by_script: bool

    @classmethod
    def of(cls, request: HttpRequest) -> FormChoices:
        """Read once for each request."""
        if _KEPT not in request.__dict__:
            request.__dict__[_KEPT] = _read(person(request), asks_for_fragment(request))
        found: FormChoices = request.__dict__[_KEPT]
        return found

    @property
    def locations(self) -> list[str]:
        """The locations to choose from. There is always one, and a submit says why it is refused."""
        return list(self.open_locations) or [adding.DEFAULT_LOCATION]

    def set_in(self, draft: AnyDraft | AnyStudyDraft) -> None:
        draft.set_choices(self.projects, self.locations)
        if self.by_script:
            for form in draft.pools if isinstance(draft, Draft) else [draft]:
                without_folded_rows(form)

    def location_of(self, draft: AnyDraft) -> str | None:
        """The location of which the page shows what it has: the one of the form, or the one that the form selects
        instead. For the person, no others exist."""
        named = str(draft.job["location"].value() or "")
        return named if named in self.open_locations else next(iter(self.open_locations), None)

    def project_of(self, draft: AnyDraft) -> Project | None:
        return self.projects.get(str(draft.job["project"].value() or ""))

    def offers_of(self, draft: AnyDraft) -> str:
        """What `offers` depends on: a page that says the same has these offers already."""
        project = self.project_of(draft)
        return f"{draft.mode} {self.location_of(draft)} {project.name if project else ''}"

    def offers(self, draft: AnyDraft) -> dict[str, Any]:
        """What there is in the location, and for the project, of the form."""
        location, project = self.location_of(draft), self.project_of(draft)
        machines = []
        if location is not None and not isinstance(draft, JsonDraft):
            machines = preview.machine_offers(location, self.user, project.name if project else "")
        by_form, machines = isinstance(draft, Draft), [offer for offer in machines if offer.ever]
        # What no host can hold is not put into the form by itself.
        fits = any(offer.name == reduction.MACHINE for offer in machines)
        return {
            "offered": self.offers_of(draft),
            "archives": archives(project) if by_form and project is not None else (),
            "gpus": preview.gpu_offers(self.user, location or ""),
            "machines": machines,
            "stored_secrets": self._stored_secrets(project),
            "reducers": {"machine": reduction.MACHINE if fits else "", "images": reduction.IMAGES},
        }

    def code_file(self, draft: AnyDraft) -> Artifact | None:
        """The upload that the form names, of the project of the form."""
        project = self.project_of(draft)
        if project is None or not isinstance(draft, Draft):
            return None
        return artifacts.find_artifact(project, draft.code.named_artifact)

    def _stored_secrets(self, project: Project | None) -> list[StoredSecret]:
        """The person's own, and those of the project."""
        own = [StoredSecret(row.name, "") for row in store.of(self.user)]
        names = {secret.name for secret in own}
        # The person's own secret comes first: another one of that name has to say that it is the project's.
        rows = store.of(project) if project else ()
        of_project = [f"project/{row.name}" if row.name in names else row.name for row in rows]
        return own + [StoredSecret(name, project.name if project else "") for name in of_project]


def archives(project: Project) -> list[Artifact]:
    """The newest archives that jobs of the project may bring."""
    return list(artifacts.of(project).filter(kind=ArtifactKind.ARCHIVE)[:ARCHIVES_SHOWN])


def _read(user: User, by_script: bool) -> FormChoices:
    projects = {project.name: project for project in access.projects_allowing(user, "submit")}
    bindings = locations.read_bindings()
    # The default location exists even before the first host.
    names = locations.names() or [adding.DEFAULT_LOCATION]
    ids = [project.pk for project in projects.values()]
    usable = [name for name in names if bindings.serves_any(name, ids)]
    return FormChoices(
        user, projects, tuple(sorted(usable, key=lambda name: name != adding.DEFAULT_LOCATION)), by_script
    )
