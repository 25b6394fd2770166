"""Stored files in a directory: what is used unless TRAINYARD_STORAGE_URL names another storage."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from django.core.files.storage import FileSystemStorage

from jobs.artifacts.storage import READ_BYTES, BytesMissing, Part, sync


class DirectoryFiles(FileSystemStorage):
    """Django's storage in a directory, with what jobs/artifacts/storage.py asks of a storage."""

    def keep(self, path: Path, key: str) -> None:
        target = Path(self.path(key))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            # The directory is a mount of its own, or its file system has no links.
            with target.open("xb") as held:
                fcntl.flock(held.fileno(), fcntl.LOCK_EX)
                shutil.copyfile(path, target)
                sync(target)
        # The directories of the project and of the digest may be new too: each is an entry in the one above it.
        for above in list(target.parents)[: key.count("/") + 1]:
            sync(above)

    def is_coming(self, key: str) -> bool:
        """Whether it is being copied: a large file to a slow mount takes longer than an orphan is kept."""
        try:
            with Path(self.path(key)).open("rb+") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
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
