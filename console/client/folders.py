"""The files below a folder that is copied to the storage, and what of it the storage cannot have."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

# A folder, wherever it is met again: its device and its number there.
Identity = tuple[int, int]


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
    _walk(found, root, "", follow, ())
    return found


def _walk(found: Folder, path: Path, below: str, follow: bool, above: tuple[Identity, ...]) -> None:
    """`below`: the name of this folder, with a `/`. `above`: the folders in which it is."""
    folders: list[tuple[Path, str]] = []
    try:
        of_folder = path.stat()
        names = sorted(os.listdir(path))
    except OSError:
        found.others.append(below)
        return
    here = (of_folder.st_dev, of_folder.st_ino)
    if here in above:
        found.others.append(below)
        return
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
    for inner, known in folders:
        _walk(found, inner, known, follow, (*above, here))


def _kind(path: Path) -> int:
    """What it is, or what it leads to; 0 if that is nothing."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return 0
