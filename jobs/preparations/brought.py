"""What a job brings to its hosts: code for its work directory, Python packages, an image in place of the one named.

It is resolved when the job is submitted, to bytes by their SHA-256, and stored with the job (`Job.resolved`): an
object that is replaced later changes no job. A branch of a repository is resolved by the first host that checks it out
(commits.py). A copy of a job brings what that job brought, wherever its document names the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from agents.infra.texts import said
from agents.runner.runtimes.loaded_images import name_of_archive
from jobs.artifacts import artifacts, blobs, objects
from jobs.models import Blob, Job, Project
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJob, CustomJobSpec, Pool
from jobs.rules.spec.json_fields import Complaints
from jobs.rules.spec.runtime_choice import engine_of
from jobs.rules.spec.secret_variables import GIT_CREDENTIAL, AskedSecret, SecretVariable
from jobs.rules.spec.tasks import Code, PythonPackage, Task, artifact_of, code_document, is_stored

TREE, ENVIRONMENT, ARCHIVE = "tree", "environment", "archive"
PACKAGES = "packages"
# In each key of a repository. Keys of before had no person in them: under those a host may have what anybody's
# credential has opened.
GIT = "git"
_PACKAGE = re.compile(r"\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz)$")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}\.whl", re.ASCII)
# Google's SDK puts the time of day into the name of a source archive; pip does not read that name.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+!-]", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def resolve(
    spec: CustomJobSpec,
    project: Project,
    location: str,
    copied: int | None = None,
    images: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """What the pools bring, as `Job.resolved` keeps it; empty if they bring nothing. Raises InvalidDocument.

    Only what is stored in this project is found. `copied`: the job that this one is a copy of. `images`: by pool, what
    is used in place of the image that it names.
    """
    pools: dict[str, Any] = {str(number): {"alias": image} for number, image in (images or {}).items()}
    brings = any(pool and (pool.code or _brings(pool.task)) for pool in spec.pools)
    if not pools and not brings:
        return {}
    before = _brought_before(copied, project)
    complaints = Complaints()
    for number, pool in enumerate(spec.pools):
        path = f"job_spec.worker_pool_specs[{number}]"
        if pool is not None and pool.code is not None:
            known = before.get(_source(code_document(pool.code)))
            found = known or _code(pool.code, project, f"{path}.trainyard.code", complaints)
            pools.setdefault(str(number), {})["code"] = {**found, "directory": pool.code.directory}
        if pool is not None and isinstance(pool.task, PythonPackage):
            field = f"{path}.python_package_spec.package_uris"
            packages = [
                before.get(uri) or _package(uri, project, f"{field}[{index}]", complaints)
                for index, uri in enumerate(pool.task.package_uris)
            ]
            pools.setdefault(str(number), {})["packages"] = packages
        if pool is not None and is_stored(pool.task.image):
            uri, field = pool.task.image, f"{path}.{pool.task.field}.{pool.task.image_field}"
            archive = before.get((ARCHIVE, uri)) or _archive(uri, project, field, complaints)
            pools.setdefault(str(number), {})[ARCHIVE] = archive
    complaints.raise_if_any()
    # Reducers need the Python of the primary: its packages, or its image.
    primary = {name: pools.get("0", {}).get(name) for name in ("packages", ARCHIVE)}
    if reduction.reducers(spec) is not None and any(primary.values()):
        pools[str(reduction.POOL)] = {name: found for name, found in primary.items() if found}
    index = settings.TRAINYARD.python_index
    return {"pools": pools, "index": index.get(location, index.get("", ""))}


def _brings(task: Task) -> bool:
    return isinstance(task, PythonPackage) or is_stored(task.image)


def _brought_before(copied: int | None, project: Project) -> dict[object, dict[str, Any]]:
    """What the job that is copied has brought, by how its document names it. As long as that job is there, so are the
    bytes."""
    if copied is None:
        return {}
    job = Job.objects.only("spec", "resolved").filter(pk=copied, project=project).first()
    if job is None:
        return {}
    found: dict[object, dict[str, Any]] = {}
    for number, pool in enumerate(job.spec["workerPoolSpecs"]):
        brought = pool_of(job, number)
        uris = pool.get("pythonPackageSpec", {}).get("packageUris", [])
        found.update(zip(uris, brought.get("packages", []), strict=False))
        if "code" in brought:
            found[_source(pool["trainyard"]["code"])] = brought["code"]
        if ARCHIVE in brought:
            found[ARCHIVE, image_in(pool)] = brought[ARCHIVE]
    return found


def image_in(pool: Mapping[str, Any]) -> str:
    """The image that a pool of a document names."""
    named = pool.get("containerSpec", {}).get("imageUri")
    return str(named or pool.get("pythonPackageSpec", {}).get("executorImageUri"))


def _source(code: Mapping[str, Any]) -> tuple[object, ...]:
    """Where the code comes from, by its document: not which directory it goes to, nor with which credential."""
    git = code.get("git", {})
    return code.get("artifact"), code.get("archiveUri"), git.get("url"), git.get("revision")


def _code(code: Code, project: Project, path: str, complaints: Complaints) -> dict[str, Any]:
    if code.git is not None:
        return {"git": {"url": code.git.url, "revision": code.git.revision}}
    if code.artifact:
        return _artifact(code.artifact, project, f"{path}.artifact", complaints)[0]
    return _object(code.archive_uri, project, f"{path}.archive_uri", complaints)


def _package(uri: str, project: Project, path: str, complaints: Complaints) -> dict[str, Any]:
    name = uri.rpartition("/")[2]
    found: dict[str, Any] = {}
    if sha256 := artifact_of(uri):
        found, name = _artifact(sha256, project, path, complaints)
        if not found:
            return {}
    if not _PACKAGE.search(name) or (name.endswith(".whl") and not _WHEEL.fullmatch(name)):
        complaints.add(path, said("must be a wheel or a source archive: .whl, .tar.gz, .zip."))
        return {}
    found = found or _object(uri, project, path, complaints)
    return {**found, "name": _NOT_IN_NAMES.sub("_", name).lstrip("._-+!")[-200:]} if found else {}


def _archive(uri: str, project: Project, path: str, complaints: Complaints) -> dict[str, Any]:
    if sha256 := artifact_of(uri):
        return _artifact(sha256, project, path, complaints)[0]
    return _object(uri, project, path, complaints)


def _artifact(sha256: str, project: Project, path: str, complaints: Complaints) -> tuple[dict[str, Any], str]:
    """The bytes of an artifact, and its name."""
    artifact = artifacts.find_artifact(project, sha256)
    if artifact is None:
        missing = said(
            "Project {project} has no artifact with this SHA-256. Upload it.", project=project.name
        )
        complaints.add(path, missing)
        return {}, ""
    return _bytes(artifact.blob), artifact.name


def _object(uri: str, project: Project, path: str, complaints: Complaints) -> dict[str, Any]:
    stored = objects.find_object(project, uri)
    if stored is None:
        missing = said(
            "Project {project} has no such object in its buckets. Upload it.", project=project.name
        )
        complaints.add(path, missing)
    return _bytes(stored.blob) if stored is not None else {}


def _bytes(blob: Blob) -> dict[str, Any]:
    return {"sha256": blob.sha256, "size": blob.size}


def with_git_credentials(asked: CustomJob) -> CustomJob:
    """The job with the credentials of its repositories among its secrets: found, copied and deleted as they are."""
    more = [
        AskedSecret(
            number,
            f"job_spec.worker_pool_specs[{number}].trainyard.code.git",
            SecretVariable(GIT_CREDENTIAL, pool.code.git.credential_secret),
        )
        for number, pool in enumerate(asked.job_spec.pools)
        if pool is not None and pool.code is not None and pool.code.git is not None
        if pool.code.git.credential_secret
    ]
    return replace(asked, asked_secrets=(*asked.asked_secrets, *more)) if more else asked


def hold(job: Job) -> None:
    """Keep the bytes until the job is deleted. In the caller's transaction. Raises Refused when they are gone."""
    digests = {each["sha256"] for pool in _pools(job).values() for each in _files(pool)}
    found = {blob.sha256: blob for blob in Blob.objects.filter(project=job.project_id, sha256__in=digests)}
    for digest in sorted(digests):
        # One that was deleted since it was resolved is refused by `hold`.
        blobs.hold(found.get(digest, Blob(sha256=digest)), job)


def order_parts(job: Job, number: int, executed: Pool) -> dict[str, Any]:
    """What the start order of a run in this pool says of what it brings (agents/README.md). `executed`: the pool as it
    is executed."""
    pool, python = pool_of(job, number), executed.task.interpreter
    parts: dict[str, Any] = {"interpreter": python} if python else {}
    if "code" in pool:
        parts["code"] = {"tree": tree_of(job, number)["key"], "directory": pool["code"]["directory"]}
    if "packages" in pool and engine_of(executed):
        parts[PACKAGES] = {"tree": packages_of(pool)["key"], "index": index_of(job)}
    elif "packages" in pool:
        environment = environment_of(pool, index_of(job), python)
        parts["runtime"] = {"kind": "python", "environment": environment["key"]}
    return parts


def tree_of(job: Job, number: int) -> dict[str, Any]:
    """What a host is told to prepare a pool's code. A branch is that of the job: another job may find it moved.

    What a credential opens is for jobs of its person alone: those of others would fail with it where they need not, or
    get what they may not.
    """
    code = pool_of(job, number)["code"]
    if "git" not in code:
        files = [_file(code)]
        return {"key": make_key(TREE, code["sha256"]), "blob": code["sha256"], "blobs": files}
    git = {"url": code["git"]["url"], "revision": code.get("commit") or code["git"]["revision"]}
    job_of_branch = None if _COMMIT.fullmatch(git["revision"]) else job.pk
    parts = [TREE, GIT, git["url"], git["revision"], job_of_branch]
    if credential := _credential(job, number):
        parts += [job.project_id, job.owner_name, credential]
    return {"key": make_key(*parts), "git": git}


def _credential(job: Job, number: int) -> str:
    """The name of the secret. The document has it, also that of a job which an earlier version has resolved."""
    code = job.spec["workerPoolSpecs"][number].get("trainyard", {}).get("code", {})
    return str(code.get("git", {}).get("credentialSecret", ""))


def environment_of(pool: Mapping[str, Any], index: str, interpreter: str) -> dict[str, Any]:
    """What a host is told to prepare a pool's environment, without the address of the index. `interpreter`: the path of
    the Python that makes it; empty for `python3`."""
    own = [interpreter] if interpreter else []
    found = _packages(pool, make_key(ENVIRONMENT, _named(pool), index, *own))
    return {**found, "interpreter": interpreter} if interpreter else found


def packages_of(pool: Mapping[str, Any]) -> dict[str, Any]:
    """What a host is told to have the packages of a pool at hand: the image's own Python installs them."""
    return _packages(pool, make_key(TREE, PACKAGES, _named(pool)))


def _packages(pool: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {"key": key, PACKAGES: _named(pool), "blobs": [_file(each) for each in pool["packages"]]}


def _named(pool: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"sha256": each["sha256"], "name": each["name"]} for each in pool["packages"]]


def index_of(job: Job) -> str:
    """The package index of the job's location, as it was when the job was submitted: an address, "none", or ""."""
    return str(job.resolved.get("index", ""))


def pool_of(job: Job, number: int) -> Mapping[str, Any]:
    """What this pool of the job brings."""
    found: Mapping[str, Any] = _pools(job).get(str(number), {})
    return found


def found_document(job: Job) -> dict[str, object]:
    """What the pools were found to bring, for people and programs, by the names of the pools; empty if nothing is.

    An image has its digest or, where no registry has it, its ID; one of the storage, and code that is no commit, the
    SHA-256 of its archive.
    """
    pools = {f"workerpool{number}": _found(pool) for number, pool in sorted(_pools(job).items())}
    known = {name: found for name, found in pools.items() if found}
    return {"brought": known} if known else {}


def _found(pool: Mapping[str, Any]) -> dict[str, object]:
    image, code = pool.get("image", {}), pool.get("code", {})
    bytes_of_code = code.get("commit") or code.get("sha256")
    name = (image["digest"] or image["id"]) if image else pool.get(ARCHIVE, {}).get("sha256")
    return {
        **({"image": name} if name else {}),
        **({"code": bytes_of_code} if bytes_of_code else {}),
        **({"packages": [each["sha256"] for each in pool["packages"]]} if "packages" in pool else {}),
    }


def _pools(job: Job) -> Mapping[str, Any]:
    found: Mapping[str, Any] = job.resolved.get("pools", {})
    return found


def _files(pool: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [*pool.get("packages", []), pool.get("code", {}), pool.get(ARCHIVE, {})]
    return [each for each in found if "sha256" in each]


def archive_of(job: Job, number: int) -> dict[str, Any]:
    """What a host is told of an image that lies in the storage; nothing of others. Its name is that of its bytes."""
    if not (archive := pool_of(job, number).get(ARCHIVE)):
        return {}
    return {
        "image": name_of_archive(archive["sha256"]),
        "archive": archive["sha256"],
        "blobs": [_file(archive)],
    }


def _file(each: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": each["sha256"], "size": each["size"]}


def make_key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
