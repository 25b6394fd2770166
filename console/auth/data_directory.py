"""Keeps the data directory to its owner: the database in it holds session keys, and the logs what jobs print.

A directory that somebody else made, such as systemd with mode 755, is closed when it is Trainyard's own. Where that
cannot be known or done, the start is refused: to close /srv or /tmp would harm other programs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from console.auth.secret_files import UnsafeFile

# What a process of Trainyard creates, only its owner can read.
UMASK = 0o077
OTHERS = 0o077
# A directory with one of these is Trainyard's.
MARKS = ("keys", "trainyard.sqlite3", "up.lock")


def prepare(path: Path, own: bool = False) -> list[str]:
    """Make the directory, or close it to other users, and set the umask of this process. Returns what was put right.

    `own`: the directory is Trainyard's, whatever is in it. Raises UnsafeFile where others can read it and it cannot be
    closed.
    """
    os.umask(UMASK)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = _mode(path)
    if not mode & OTHERS:
        return []
    # A sticky bit means that the directory is shared on purpose, as /tmp is.
    is_ours = own or not any(path.iterdir()) or any((path / name).exists() for name in MARKS)
    if mode & stat.S_ISVTX or not is_ours:
        raise UnsafeFile(
            f"The data directory {path} can be opened by other users (mode {mode:o}) and holds other files. "
            f"Give Trainyard a directory of its own, or run: chmod 700 {path}"
        )
    return [_close(path, mode & ~OTHERS)]


def close_files(paths: Iterable[Path]) -> list[str]:
    """Close files that were made before, or elsewhere, with other permissions. Returns what was put right."""
    open_files = (path for path in paths if path.is_file() and _mode(path) & OTHERS)
    return [_close(path, _mode(path) & ~OTHERS) for path in open_files]


def _close(path: Path, mode: int) -> str:
    before = _mode(path)
    try:
        path.chmod(mode)
    except OSError as problem:
        raise UnsafeFile(
            f"{path} can be opened by other users (mode {before:o}), and this user may not change that "
            f"({problem.strerror}). As root: chmod {mode:o} {path}, and chown it to the user of Trainyard."
        ) from problem
    return f"{path} could be opened by other users (mode {before:o}). Its mode is now {mode:o}."


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
