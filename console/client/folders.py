"""The files below a folder that is copied to the storage, and what of it the storage cannot have."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from .errors import NOT_UNDERSTOOD, ClientError

# A folder, wherever it is met again: its device and its number there.
Identity = tuple[int, int]
# A folder that is still to be read: its path, its name, and the folders in which it is.
_Waiting = tuple[Path, str, tuple[Identity, ...]]
# Files and folders that are taken by links. Folders that link crosswise have no end that anybody would see.
MOST = 1_000_000


@dataclass
class Folder:
    """Names are below the folder, with `/`."""

    files: list[tuple[Path, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    # Sockets, pipes, what cannot be read, links that lead nowhere or back to a folder above them.
    others: list[str] = field(default_factory=list)


def read_folder(root: Path, follow: bool) -> Folder:
    """`follow`: what a link leads to is taken in its place; else links are left out."""
    found = Folder()
    # A stack: Python calls itself only so deep.
    waiting: list[_Waiting] = [(root, "", ())]
    seen = 0
    while waiting:
        waiting += reversed(_read(found, *waiting.pop(), follow))
        seen += 1
        if follow and seen + len(found.files) > MOST:
            raise ClientError(
                f"{root} has more than {MOST} files and folders, with those that links lead to.",
                "Leave out --follow, or copy parts of it.",
                NOT_UNDERSTOOD,
            )
    return found


def _read(found: Folder, path: Path, below: str, above: tuple[Identity, ...], follow: bool) -> list[_Waiting]:
    """The folders in this one. `below`: its name, with a `/`. `above`: the folders in which it is."""
    folders: list[tuple[Path, str]] = []
    try:
        of_folder = path.stat()
        names = sorted(os.listdir(path))
    except OSError:
        found.others.append(below)
        return []
    here = (of_folder.st_dev, of_folder.st_ino)
    if here in above:
        found.others.append(below)
        return []
    for name in names:
        inner, known = path / name, below + name
        if inner.is_symlink() and not follow:
            found.links.append(known)
        elif (kind := _kind(inner)) == stat.S_IFDIR:
            folders.append((inner, known + "/"))
        elif kind == stat.S_IFREG:
            found.files.append((inner, known))
        else:
            found.others.append(known)
    return [(inner, known, (*above, here)) for inner, known in folders]


def _kind(path: Path) -> int:
    """What it is, or what it leads to; 0 if that is nothing."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return 0
