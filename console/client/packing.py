"""A folder as an archive for a job: the same folder gives the same bytes, so that it is uploaded once."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .errors import NOT_UNDERSTOOD, ClientError
from .ignore_rules import ALWAYS, Rule, is_left_out, rules_in, rules_of
from .progress import Progress

# The first day that ZIP knows, which some build tools ask for: times of files are no part of the content.
AT = 315532800
MAX_FILES = 100_000
BLOCK = 1 << 20


@dataclass
class Tree:
    """What of a folder is uploaded. Paths are below the folder, with `/`."""

    root: Path
    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # What is no file: sockets, pipes, and links that lead out of the folder.
    odd: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(status.st_size for _, status in self.files)


def read_tree(root: Path) -> Tree:
    """What of a folder is uploaded, and what is left out."""
    if not root.is_dir():
        raise ClientError(f"{root} is no folder.", "Name the folder with the code.", NOT_UNDERSTOOD)
    tree = Tree(root)
    _walk(tree, "", rules_of(ALWAYS))
    if not tree.files:
        raise ClientError(
            f"There is no file to upload in {root}.", "Look at its .gitignore and .trainyardignore."
        )
    return tree


def _walk(tree: Tree, folder: str, rules: list[Rule]) -> None:
    rules = rules + rules_in(tree.root, folder)
    try:
        entries = sorted(os.scandir(tree.root / folder), key=lambda entry: entry.name)
    except OSError as problem:
        raise ClientError(f"{tree.root / folder} cannot be read: {problem.strerror}") from None
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_left_out(path, is_folder, rules):
            tree.left_out.append(path + "/" * is_folder)
        elif is_folder:
            _walk(tree, path, rules)
        elif entry.is_symlink():
            (tree.links if _stays_inside(path, os.readlink(entry.path)) else tree.odd).append(path)
        elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
            tree.files.append((path, status))
        else:
            tree.odd.append(path)
        if len(tree.files) > MAX_FILES:
            raise ClientError(
                f"{tree.root} has more than {MAX_FILES:,} files.",
                "Leave data out by .trainyardignore, or upload it: trainyard cp",
            )


def _stays_inside(path: str, to: str) -> bool:
    """Whether a link leads to a place in the folder."""
    if os.path.isabs(to):
        return False
    return not os.path.normpath(os.path.join(os.path.dirname(path), to)).startswith("..")


@contextmanager
def packed(tree: Tree, progress: Progress) -> Iterator[tuple[IO[bytes], str, int]]:
    """The archive as a file, its SHA-256 and its size. The file goes when the block ends."""
    with tempfile.TemporaryFile(prefix="trainyard-") as file:
        with (
            gzip.GzipFile("", "wb", 6, file, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path, _ in tree.files:
                _add(archive, tree.root, path, progress)
            for path in tree.links:
                archive.addfile(_link(path, os.readlink(tree.root / path)))
        size = file.tell()
        file.seek(0)
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        file.seek(0)
        yield file, digest.hexdigest(), size


def _add(archive: tarfile.TarFile, root: Path, path: str, progress: Progress) -> None:
    """A file as it is now: it may have changed since the folder was read."""
    try:
        with open(root / path, "rb") as file:
            status = os.fstat(file.fileno())
            member = _member(path, 0o755 if status.st_mode & 0o100 else 0o644)
            member.size = status.st_size
            archive.addfile(member, _Counted(file, progress))
    except OSError as problem:
        raise ClientError(
            f"{root / path} cannot be read: {problem.strerror or problem}", "Leave it out, or try again."
        ) from None


class _Counted:
    """A file whose reads move the bar."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._progress.add(len(data))
        return data


def _member(path: str, mode: int) -> tarfile.TarInfo:
    """Without owner and time, which are those of this machine."""
    member = tarfile.TarInfo(path)
    member.mode, member.mtime = mode, AT
    return member


def _link(path: str, to: str) -> tarfile.TarInfo:
    member = _member(path, 0o777)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member
