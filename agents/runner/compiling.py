"""Compiles the runner's modules, and keeps what Python made of them (compiled.py) beside the archive."""

from __future__ import annotations

import contextlib
import hashlib
import io
import marshal
import os
import sys
import time
import zipfile
from typing import Dict, List, NoReturn, Tuple

from agents.runner.compiled import DRAFT, HEAD, file_of, hash_of, identity_of
from agents.runner.forks import detach

# A start that finds nothing is often one of several: they begin together after an installation. The work, half a
# second to two, waits until they have begun, and one process does it for all of them.
PAUSE_S = 1.0
DRAFT_LIVES_S = 60.0
# What Python makes of the sources is longer than they are.
_ROOM = 2


def main() -> NoReturn:
    """In a fork that nobody waits for. It fails silently: what it makes is only there to be quick."""
    archive = os.path.abspath(sys.argv[0])
    try:
        detach(set(), "trainyard-compile")
        os.nice(19)
        write_compiled(archive, PAUSE_S)
    finally:
        os._exit(0)


def write_compiled(archive: str, pause_s: float = 0.0) -> bool:
    """Write the file under a name of its own first. False if the archive is damaged, or another process is at it."""
    with open(archive, "rb") as file:
        data = file.read()
    if os.path.basename(archive) != hashlib.sha256(data).hexdigest() + ".pyz":
        return False
    draft = os.path.join(os.path.dirname(archive), DRAFT + os.urandom(8).hex())
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        begun = os.fstat(fd).st_mtime_ns
        if is_another_at_it(draft, begun):
            return False
        # First the room: on a full disk nothing is compiled in vain, at each start anew. The date stays that of the
        # begin: of those that begin together, the first one goes on.
        write_all(fd, bytes(_ROOM * len(data)))
        os.utime(draft, ns=(begun, begun))
        time.sleep(pause_s)
        made = compiled(archive, data)
        os.lseek(fd, 0, os.SEEK_SET)
        write_all(fd, made)
        os.ftruncate(fd, len(made))
        os.fsync(fd)
        os.rename(draft, file_of(archive))
        return True
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(draft)


def is_another_at_it(draft: str, begun: int) -> bool:
    """Whether a draft is there that was begun earlier and not long ago. Their dates are by the same clock, which may
    be a file server's, and is not compared with any other."""
    directory, own = os.path.split(draft)
    for other in os.listdir(directory):
        if other.startswith(DRAFT) and other != own:
            with contextlib.suppress(FileNotFoundError):
                at = os.stat(os.path.join(directory, other)).st_mtime_ns
                if (at, other) < (begun, own) and begun - at < DRAFT_LIVES_S * 1e9:
                    return True
    return False


def compiled(archive: str, data: bytes) -> bytes:
    """The bytes of the file, of an archive with these bytes."""
    modules: Dict[str, Tuple[bool, int, int, bytes]] = {}
    codes: List[bytes] = []
    at = 0
    with zipfile.ZipFile(io.BytesIO(data)) as sources:
        for entry in sources.namelist():
            place, _, kind = entry.rpartition(".")
            if kind == "py" and place != "__main__":
                made = compile(sources.read(entry), "%s/%s" % (archive, entry), "exec", dont_inherit=True)
                code = marshal.dumps(made)
                is_package = place.endswith("/__init__")
                name = place[: -len("/__init__")] if is_package else place
                modules[name.replace("/", ".")] = (is_package, at, at + len(code), hash_of(code))
                codes.append(code)
                at += len(code)
    index = marshal.dumps((identity_of(archive), modules))
    return b"".join((hash_of(index), len(index).to_bytes(HEAD, "little"), index, *codes))


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
