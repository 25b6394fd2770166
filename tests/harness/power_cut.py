"""What would be left after a power cut: only what was synced. The tested process keeps a journal of each fsync.

A file is left with its content as of its last fsync, and only under names that were in a directory when that directory
was synced. `journal_in` makes a child Python write such a journal too, by a sitecustomize module on its path.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat

SITE = """
import json, os
honest = os.fsync

def fsync(fd):
    honest(fd)
    path = os.readlink("/proc/self/fd/%d" % fd)
    if os.path.isdir(path):
        row = {"path": path, "names": {name: os.lstat(os.path.join(path, name)).st_ino for name in os.listdir(path)}}
    else:
        with open(path, "rb") as file:
            row = {"path": path, "inode": os.fstat(fd).st_ino, "data": file.read(1 << 20).decode("latin-1")}
    with open(os.environ["SYNC_JOURNAL"], "a") as journal:
        journal.write(json.dumps(row) + "\\n")

os.fsync = fsync
"""


def journal_in(directory: pathlib.Path) -> dict[str, str]:
    """The environment of a child whose syncs are to be written to `directory`/journal."""
    (directory / "sitecustomize.py").write_text(SITE)
    return {"PYTHONPATH": str(directory), "SYNC_JOURNAL": str(directory / "journal")}


class Synced:
    """What was synced: the rows of a journal, or the syncs of this process while `watch` has replaced os.fsync."""

    def __init__(self, rows=()):
        self.names: dict[str, dict[str, int]] = {}
        self.data: dict[int, bytes] = {}
        for row in rows:
            if "names" in row:
                self.names[row["path"]] = row["names"]
            else:
                self.data[row["inode"]] = row["data"].encode("latin-1")

    @classmethod
    def read(cls, text):
        return cls(json.loads(line) for line in text.splitlines() if line.startswith("{"))

    def watch(self, monkeypatch):
        honest = os.fsync

        def fsync(fd):
            honest(fd)
            path = os.readlink(f"/proc/self/fd/{fd}")
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self.names[path] = {
                    name: os.lstat(os.path.join(path, name)).st_ino for name in os.listdir(path)
                }
            else:
                self.data[os.fstat(fd).st_ino] = pathlib.Path(path).read_bytes()

        monkeypatch.setattr(os, "fsync", fsync)
        return self

    def left(self, path: pathlib.Path, root: pathlib.Path) -> bytes | None:
        """The content that a file below `root` has after the cut; None: it is not there. `root` itself is there."""
        inode = None
        for above in reversed(path.relative_to(root).parents):
            at = root / above
            name = path.relative_to(at).parts[0]
            inode = self.names.get(str(at), {}).get(name)
            if inode is None:
                return None
        return self.data.get(inode or 0, b"")
