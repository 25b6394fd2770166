"""Notes at start about files that all machines of a deployment share: `keys/`, `logs/` and the files that projects
store (docs/operating.md)."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from agents.infra.refusals import Unavailable
from agents.ssh import keys
from jobs.artifacts import storage as stored_files
from jobs.logs import storage
from jobs.models import Blob, LogSegment


def notes() -> Iterator[str]:
    """Trainyard starts all the same: the files may be lost, and everything else goes on."""
    try:
        keys.check_private_key()
    except keys.KeyUnreadable as problem:
        yield f"{problem} On another machine of the deployment, copy its keys/ here. Until then no host is reached."
    newest = LogSegment.objects.order_by("-pk").values_list("key", flat=True).first()
    if newest is not None and not storage.exists(newest):
        yield (
            "logs/ lacks files that the database names: those logs cannot be read from here. With several machines,"
            " put logs/ on storage that all of them share; after a restore, restore logs/ too."
        )
    yield from _of_stored_files()


def _of_stored_files() -> Iterator[str]:
    where = "artifacts/"
    cure = "With several machines, put artifacts/ on storage that all of them share, or use S3."
    if settings.TRAINYARD.storage is not None:
        options = settings.STORAGES["artifacts"]["OPTIONS"]
        where = f"s3://{options['bucket_name']}/{options['location']}"
        if problem := stored_files.problem():
            yield f"The storage {where} cannot be used: {problem} Until then no file can be stored, read or shipped."
            return
        yield f"Files of projects are stored in {where}."
        cure = "Copy them from where they were stored before."
    newest = Blob.objects.order_by("-pk").values_list("key", flat=True).first()
    try:
        if newest is None or stored_files.exists(newest):
            return
    except Unavailable as problem:
        yield problem.message
        return
    yield (
        f"{where} lacks files that the database names: they can neither be read nor shipped from here. {cure}"
        " After a restore, restore them from the backup too."
    )
