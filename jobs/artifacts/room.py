"""How many bytes a project stores, and whether more fit its quota.

Every blob counts once, however many names it has. An upload that goes over several requests counts with the size that
it announced, so that many at once cannot exceed the quota together; and with what has come, where that is more or where
it announced none.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Sum

from agents.infra.refusals import Exhausted
from agents.infra.texts import said
from jobs.artifacts import storage
from jobs.models import Blob, Project, Quota, Upload
from jobs.rules.scheduling.quota import GB, Metric, storage_refusal, storage_warning


def lock(project: int) -> None:
    """Until the end of the transaction, nobody else stores, replaces or deletes anything of this project. Taken before
    any row of an object or blob is locked, and before what is decided upon is read."""
    Project.objects.select_for_update(no_key=True).only("pk").get(pk=project)


def stored_bytes(projects: Sequence[int]) -> dict[int, int]:
    """What each of these projects stores. Those that store nothing are left out."""
    rows = Blob.objects.filter(project__in=projects).order_by().values_list("project")
    return dict(rows.annotate(Sum("size")))


def limit_of(project: Project) -> float | None:
    """The quota in GB; None where there is none."""
    rows = Quota.objects.filter(project=project, metric=Metric.STORAGE_GB, user=None, each=False)
    return rows.values_list("value", flat=True).first()


def check(project: Project, more: int, without: Upload | None = None) -> None:
    """Raise Exhausted when so many more bytes exceed the quota. Whoever adds them has locked the project, so that two
    uploads cannot share the last place. `without`: the upload that these bytes come from."""
    limit = limit_of(project)
    if limit is None:
        return
    why = storage_refusal(_named(project), limit, _used(project, without), more)
    if why:
        raise Exhausted("project", why)


def warning(project: Project) -> str:
    """What people are to know before the quota is full; empty while there is room."""
    limit = limit_of(project)
    return "" if limit is None else storage_warning(_named(project), limit, _used(project, None))


def free_bytes(project: Project, without: Upload | None = None) -> int | None:
    """How many more bytes the quota allows; None where there is no quota. `without`: as in `check`."""
    limit = limit_of(project)
    return None if limit is None else max(int(limit * GB) - _used(project, without), 0)


def _used(project: Project, without: Upload | None) -> int:
    coming = Upload.objects.filter(bucket__project=project, stored=None)
    if without is not None:
        coming = coming.exclude(pk=without.pk)
    sizes = (max(size or 0, _received(key)) for size, key in coming.values_list("size", "key"))
    return stored_bytes([project.pk]).get(project.pk, 0) + sum(sizes)


def _received(key: str) -> int:
    try:
        return storage.upload_path(key).stat().st_size
    except FileNotFoundError:
        return 0


def _named(project: Project) -> str:
    return said("project {name}", name=project.name)
