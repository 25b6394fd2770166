"""The storage of log segments: Django's Storage `logs`, a directory unless the settings name another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

MB = 1024 * 1024


def store() -> Storage:
    return storages["logs"]


def write(key: str, data: bytes | IO[bytes]) -> str:
    """Store a file durably. Returns its name, which may differ from `key` but never is that of another file."""
    name = store().save(key, ContentFile(data) if isinstance(data, bytes) else data)
    path = local_path(name)
    if path is not None:
        sync(path)
        # The directories of the job and of the run may be new too: each is an entry in the one above it.
        for above in list(path.parents)[: name.count("/") + 1]:
            sync(above)
    return name


def read(key: str, offset: int, length: int) -> bytes:
    with store().open(key, "rb") as file:
        file.seek(offset)
        return bytes(file.read(length))


def exists(key: str) -> bool:
    return store().exists(key)


def remove(key: str) -> None:
    store().delete(key)


def local_path(name: str) -> Path | None:
    """The path of a stored file; None for a remote Storage, whose `save` is durable when it returns."""
    try:
        return Path(store().path(name))
    except NotImplementedError:
        return None


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_disk_low() -> bool:
    """Whether the console has less free disk than its minimum. Then hosts keep their logs and new jobs are refused."""
    try:
        free = shutil.disk_usage(settings.TRAINYARD.data).free
    except OSError:
        return True
    return free < settings.TRAINYARD.min_free_mb * MB


def files() -> Iterator[str]:
    """Yield every stored file."""
    try:
        jobs, _ = store().listdir("")
    except (FileNotFoundError, NotImplementedError):
        return
    for job in jobs:
        for run in store().listdir(job)[0]:
            for name in store().listdir(f"{job}/{run}")[1]:
                yield f"{job}/{run}/{name}"
