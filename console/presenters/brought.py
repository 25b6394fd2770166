"""What the pools of a job bring: by its document, and the bytes that this was found to be (`Job.resolved`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext as _

from agents.infra.text import visible
from jobs.artifacts import artifacts, objects
from jobs.models import Job, Project
from jobs.preparations.brought import pool_of
from jobs.rules.spec.tasks import HOST_IMAGE


@dataclass(frozen=True, slots=True)
class Brought:
    """`what`: its kind, in words. `name`: as the document has it. `found`: a digest, a hash or a commit; empty where
    nobody knows it yet. `note`: its size, and what else there is to say. `url`: where its bytes can be read."""

    what: str
    name: str
    found: str = ""
    note: str = ""
    url: str = ""


def of_document(document: Mapping[str, Any]) -> tuple[Brought, ...]:
    """What a job would bring. Equal pools count once."""
    found = [each for pool in _pools(document.get("jobSpec", {})) for each in of_pool(pool, {})]
    return tuple(dict.fromkeys(found))


def of_job(job: Job) -> dict[int, tuple[Brought, ...]]:
    """What the job has brought, by the number of the pool, with links to what its project still stores."""
    return {
        number: tuple(_linked(each, job.project) for each in of_pool(pool, pool_of(job, number)))
        for number, pool in enumerate(job.spec.get("workerPoolSpecs", []))
        if pool
    }


def kept(job: Job) -> tuple[Brought, ...]:
    """What a clone of this job brings again: what a name may have been and is not any more."""
    pools = enumerate(job.spec.get("workerPoolSpecs", []))
    found = [each for number, pool in pools if pool for each in of_pool(pool, pool_of(job, number))]
    return tuple(dict.fromkeys(each for each in found if each.found and each.found not in each.name))


def of_pool(pool: Mapping[str, Any], found: Mapping[str, Any]) -> Iterable[Brought]:
    """`pool`: of the document. `found`: the same pool in `Job.resolved`."""
    task = pool.get("pythonPackageSpec") or pool.get("containerSpec", {})
    image = task.get("imageUri") or task.get("executorImageUri") or HOST_IMAGE
    if image != HOST_IMAGE:
        alias, has = found.get("alias"), found.get("image", {})
        name = image if alias is None else f"{image} → {alias}"
        archive = found.get("archive", {})
        has_bytes = has.get("digest") or has.get("id") or archive.get("sha256", "")
        yield Brought(_("Image"), visible(name), has_bytes, _size(archive))
    packages = found.get("packages", [])
    for number, uri in enumerate(task.get("packageUris", [])):
        has = packages[number] if number < len(packages) else {}
        yield Brought(_("Python package"), visible(uri), has.get("sha256", ""), _size(has))
    ours = pool.get("trainyard") or {}
    if runtime := ours.get("runtime"):
        yield Brought(_("Runtime"), visible(runtime))
    if code := ours.get("code"):
        has = found.get("code", {})
        place = (
            _("in {directory}").format(directory=visible(code["directory"])) if "directory" in code else ""
        )
        note = ", ".join(filter(None, (_size(has), place)))
        yield Brought(_("Code"), visible(_source(code)), has.get("commit") or has.get("sha256", ""), note)


def _source(code: Mapping[str, Any]) -> str:
    git = code.get("git")
    if git:
        return _("{revision} of {url}").format(revision=git.get("revision", ""), url=git.get("url", ""))
    return str(code.get("archiveUri") or code.get("artifact") or "")


def _size(found: Mapping[str, Any]) -> str:
    return filesizeformat(found["size"]) if "size" in found else ""


def _linked(each: Brought, project: Project) -> Brought:
    """With the address of its bytes, or what has become of them. The job keeps its own as long as it is there."""
    if len(each.found) != 64:
        return each
    if each.name.startswith("gs://"):
        stored = objects.find_object(project, each.name)
        if stored is not None and stored.blob.sha256 == each.found:
            url = reverse("object-file", args=[project.name, stored.bucket.name, stored.name])
            return _with(each, url)
        gone = _("deleted there since") if stored is None else _("replaced there since")
        return _with(each, "", gone)
    artifact = artifacts.find_artifact(project, each.found)
    if artifact is None:
        return each
    return _with(each, reverse("artifact-file", args=[project.name, artifact.sha256]), visible(artifact.name))


def _with(each: Brought, url: str, more: str = "") -> Brought:
    note = ", ".join(filter(None, (each.note, more)))
    return Brought(each.what, each.name, each.found, note, url)


def _pools(job_spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (pool for pool in job_spec.get("workerPoolSpecs", []) if pool)
