"""Stored files in a directory: what is used unless TRAINYARD_STORAGE_URL names another storage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.files.storage import FileSystemStorage

from jobs.artifacts import file_locks
from jobs.artifacts.file_locks import Lock
from jobs.artifacts.storage import READ_BYTES, BytesMissing, Part, sync


class DirectoryFiles(FileSystemStorage):
    """Django's storage in a directory, with what jobs/artifacts/storage.py asks of a storage."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Where there are no locks: how large a file was when it was last looked at.
        self._sizes: dict[str, int] = {}

    def keep(self, path: Path, key: str) -> None:
        target = Path(self.path(key))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            # The directory is a mount of its own, or its file system has no links.
            with path.open("rb") as received, target.open("xb") as held:
                file_locks.take(held.fileno())
                shutil.copyfileobj(received, held, READ_BYTES)
                held.flush()
                os.fsync(held.fileno())
        # The directories of the project and of the digest may be new too: each is an entry in the one above it.
        for above in list(target.parents)[: key.count("/") + 1]:
            sync(above)

    def is_coming(self, key: str) -> bool:
        """Whether it is being copied: a large file to a slow mount takes longer than an orphan is kept."""
        try:
            with Path(self.path(key)).open("rb+") as file:
                lock, size = file_locks.take(file.fileno()), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return False
        if lock is Lock.NONE:
            return self._grows(key, size)
        return lock is Lock.HELD

    def _grows(self, key: str, size: int) -> bool:
        """Whether it may have grown since the last look, an hour ago. The first look cannot know."""
        if self._sizes.get(key) != size:
            self._sizes[key] = size
            return True
        del self._sizes[key]
        return False

    def pieces(self, key: str, start: int, end: int) -> Iterator[bytes]:
        try:
            file = self.open(key, "rb")
        except FileNotFoundError as problem:
            raise BytesMissing from problem
        with file:
            file.seek(start)
            while start < end:
                piece = file.read(min(READ_BYTES, end - start))
                if not piece:
                    raise BytesMissing
                start += len(piece)
                yield piece

    def keys(self) -> Iterator[str]:
        for project in self._folders(""):
            for digest in self._folders(project):
                folder = f"{project}/{digest}"
                for name in self.listdir(folder)[1]:
                    yield f"{folder}/{name}"

    def _folders(self, above: str) -> list[str]:
        try:
            found, _ = self.listdir(above)
        except FileNotFoundError:
            return []
        return list(found)

    def parts(self) -> Iterator[Part]:
        """A file that was half written has a name of its own, and is found by `keys`."""
        return iter(())

    def abandon(self, part: Part) -> None:
        raise NotImplementedError

    def problem(self) -> str:
        """The directory is that of the data directory, without which nothing starts."""
        return ""
