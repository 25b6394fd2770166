"""Images: a run in a container needs its image on its host, and all runs of a job get the same one.

A tag may be moved at any time, so each attempt asks the registry what it is now. What the first host got is stored with
the job (`Job.resolved`): all other hosts must get the same, and all later runs start that image, also those of clones.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from agents.infra.texts import said
from jobs.models import Job, Preparation, PreparationNeed, Run
from jobs.preparations.brought import archive_of, image_in, pool_of
from jobs.preparations.need import Need
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.image_aliases import as_kept
from jobs.rules.spec.image_registries import registry_of
from jobs.rules.spec.machine_types import Needs
from jobs.rules.spec.parse import parse_spec
from jobs.rules.spec.runtime_choice import runtime_of, runtime_order
from jobs.rules.spec.tasks import HOST_IMAGE, is_sif
from jobs.secrets import image_registries, of_jobs

IMAGE = "image"
# What engines say of a registry that asks who they are (401), or does not let them (403).
_NOT_GIVEN = re.compile(
    "unauthorized|authentication required|no basic auth|access denied|is denied|forbidden", re.I
)
# Hosts say what they have; an engine would take other texts for a name, or an address.
_ID, _DIGEST = re.compile(r"[0-9a-f]{64}"), re.compile(r"sha256:[0-9a-f]{64}")


class ImageKind:
    name = IMAGE

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        runtime = run.order.get("runtime") or {}
        if "image" not in runtime:
            return
        image = pool.task.image
        if archive := archive_of(run.job, run.replica.pool):
            yield _of_archive(image, {"engine": runtime["kind"], **archive})
            return
        known = pool_of(run.job, run.replica.pool).get("image")
        what = {"engine": runtime["kind"], **_asked(image, known)}
        parts = [what["engine"], what["image"], *([what["id"]] if known else [])]
        # What a tag is now is asked once for all runs of an attempt. A project has its own credentials: with those of
        # another one its jobs would fail where they need not, or get what they may not.
        parts += [run.job_id, run.attempt] if "always" in what else ["project", run.job.project_id]
        key = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:40]
        yield Need(self.name, key, what, said("the image {image}", image=image))

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        """The credential of the registry, of the project whose jobs need this image; none if they all are over."""
        needs = preparation.needs.exclude(run__job__state__in=TERMINAL).select_related("run__job__project")
        need = needs.order_by("-pk").first()
        if need is None or _is_file(preparation):
            return {}
        registry = registry_of(str(preparation.what["image"]))
        # Where the pull is done. Jobs may name regions of Google's in its place.
        location = preparation.host.location.name
        found = image_registries.credentials(need.run.job.project, location, registry)
        return {"credentials": found} if found else {}


def _of_archive(image: str, what: Mapping[str, Any]) -> Need:
    """The bytes say what it is, so no host is compared with another. Jobs that bring them under another address have
    a preparation of their own: people read the address."""
    key = hashlib.sha256(f"archive {what['engine']} {what['archive']} {image}".encode()).hexdigest()[:40]
    return Need(IMAGE, key, what, said("the image {image}", image=image))


def _is_file(preparation: Preparation) -> bool:
    """Whether no registry has it."""
    return "archive" in preparation.what or is_sif(str(preparation.what["image"]))


def cure(failed: Preparation, project: str) -> str:
    """What helps where a registry did not give an image that its engine asked for; else empty."""
    if failed.kind != IMAGE or _is_file(failed) or not _NOT_GIVEN.search(failed.message):
        return ""
    registry = registry_of(str(failed.what["image"]))
    return said(
        "The registry {registry} has no such image, or gives it only to those whom it knows. An admin of the project "
        "sets its user and password under Secrets, or with PUT {address}.",
        registry=registry,
        address=f"/api/v1/projects/{project}/imageRegistries/{registry}",
    )


def as_before(spec: CustomJobSpec, resolved: dict[str, Any], copied: int | None) -> dict[str, Any]:
    """`resolved`, with the images of the job that is copied, wherever the document names the same, means the same by
    the aliases of today, and is run by the same engine: engines have IDs of their own for images."""
    has_image = any(pool is not None and pool.task.image != HOST_IMAGE for pool in spec.pools)
    old = None
    if copied is not None and has_image:
        old = Job.objects.only("spec", "resolved", "machine_types").filter(pk=copied).first()
    if old is None:
        return resolved
    old_pools, types = (
        old.spec["workerPoolSpecs"],
        {name: Needs(**kept) for name, kept in old.machine_types.items()},
    )
    old_used, used = _used(parse_spec(old.spec, types), old.resolved), _used(spec, resolved)
    pools: dict[str, Any] = dict(resolved.get("pools", {}))
    for number, pool in enumerate(spec.pools):
        before, new = pool_of(old, number), pools.get(str(number), {})
        same = before.get("alias") == new.get("alias") and used.get(number) == old_used.get(number)
        if (
            (image := before.get("image"))
            and pool
            and same
            and pool.task.image == image_in(old_pools[number])
        ):
            pools[str(number)] = {**new, "image": image}
    return {**resolved, "pools": pools} if pools else resolved


def _used(spec: CustomJobSpec, resolved: Mapping[str, Any]) -> dict[int, tuple[str, str]]:
    """(runtime, image) of each pool as it is executed: reducers are run by what runs the primary."""
    pools = enumerate(as_kept(spec, resolved).pools)
    return {number: (runtime_of(pool), pool.task.image) for number, pool in pools if pool}


def order_parts(job: Job, number: int, pool: Pool) -> dict[str, Any]:
    """What the start order of a run in this pool says of its runtime; once it is known, the image by its ID."""
    runtime = runtime_order(pool)
    if archive := archive_of(job, number):
        runtime = {**runtime, "image": archive["image"]}
    elif known := pool_of(job, number).get("image"):
        runtime = {**runtime, "image": known["id"]}
    return {"runtime": runtime} if runtime else {}


def settle(jobs: Collection[int]) -> None:
    """Store the image of each pool, and let the runs start that one. A host that has another one has failed.

    The caller holds the locks of the jobs.
    """
    found: dict[tuple[int, str], list[PreparationNeed]] = defaultdict(list)
    needs = PreparationNeed.objects.filter(
        run__job__in=jobs,
        run__preparing=True,
        preparation__kind=IMAGE,
        preparation__phase=PreparationState.READY,
        preparation__result__has_key="id",
    )
    for need in needs.select_related("run", "preparation__host").order_by("preparation"):
        # A name with a digest says itself what it is, also where hosts of two architectures have two images.
        if {"always", "id"} & need.preparation.what.keys() and _of(need.preparation):
            found[need.run.job_id, need.preparation.key].append(need)
    for (job, _), of_image in found.items():
        _settle(job, of_image)


def _settle(job: int, needs: list[PreparationNeed]) -> None:
    row = Job.every.only("resolved").get(pk=job)
    pools: dict[str, Any] = row.resolved.setdefault("pools", {})
    numbers = {str(of_jobs.pool_of(need.run_id)) for need in needs}
    known = next((pools[each]["image"] for each in numbers if "image" in pools.get(each, {})), None)
    image = known or _of(needs[0].preparation)
    for need in needs:
        if _of(need.preparation)["id"] != image["id"]:
            _fail(need.preparation)
        elif (order := need.run.order)["runtime"]["image"] != image["id"]:
            order["runtime"]["image"] = image["id"]
            Run.objects.filter(pk=need.run_id).update(order=order)
    if any("image" not in pools.get(each, {}) for each in numbers):
        for each in numbers:
            pools.setdefault(each, {})["image"] = image
        Job.every.filter(pk=job).update(resolved=row.resolved)


def _fail(preparation: Preparation) -> None:
    host, image = preparation.host.name, str(preparation.what["image"])
    if is_sif(image):
        words = said(
            "{host} has other bytes under {image} than another host of the job, or than the job had before. Put the "
            "same file on all hosts, and submit the job again.",
            host=host,
            image=image,
        )
    else:
        words = said(
            "{host} has got another one than the job has elsewhere, or had before: its tag was moved, or this host "
            "cannot pull it. Submit the job again, or name the image by its digest.",
            host=host,
        )
    Preparation.objects.filter(pk=preparation.pk).update(
        phase=PreparationState.FAILED, fault="user", message=words
    )


def _asked(image: str, known: Mapping[str, str] | None) -> dict[str, Any]:
    """What a host is asked for: the image that the job has, or what the name is now."""
    if known:
        return {"image": _exactly(image, known["digest"]), "id": known["id"]}
    return {"image": image} if "@sha256:" in image else {"image": image, "always": True}


def _exactly(image: str, digest: str) -> str:
    """The name with the digest in place of its tag. Without a digest (it was never in a registry) there is no better
    name."""
    place, slash, name = image.rpartition("/")
    return f"{place}{slash}{name.partition('@')[0].partition(':')[0]}@{digest}" if digest else image


def _of(preparation: Preparation) -> dict[str, str]:
    """What the host has got, if it says so."""
    found, digest = str(preparation.result.get("id")), str(preparation.result.get("digest"))
    if not _ID.fullmatch(found):
        return {}
    return {"id": found, "digest": digest if _DIGEST.fullmatch(digest) else ""}
