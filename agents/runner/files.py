"""Files: documents that are whole or absent, also on a full disk, and never larger than the reader expects."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
from typing import Any, Dict, List, Tuple

from agents.runner.wire import MAX_HEADER, WireError, refuse_constant

SPARES = 4  # one for each fact that may still have to be written: running, stopping, ended, closed
SPARE_BYTES = 16 * 1024
HOST_SPARES = 16  # for what is written before there is a run: the owner, a refused start
HOST_SPARE_BYTES = 4 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT)


def read_plain(path: str, maximum: int) -> bytes:
    """The bytes of a plain file. A pipe or a link that a replica put in its place is an OSError; nothing waits for
    it."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        return os.read(fd, min(maximum, found.st_size))
    finally:
        os.close(fd)


_STRICT = json.JSONDecoder(parse_constant=refuse_constant)


def read_json(path: str) -> Dict[str, Any] | None:
    """The document; None when there is none, or none that is whole and could be sent on."""
    try:
        value = _STRICT.decode(read_plain(path, 1 << 24).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def whole(value: Any, maximum: int = 1 << 53) -> int:
    """An offset or a count that was read back. A replica may write into its run's directory: nonsense becomes 0."""
    return value if type(value) is int and 0 <= value <= maximum else 0


def read_cut(directory: str) -> Tuple[int, List[List[int]]]:
    """(generation, holes) of what the keeper punched out of a log."""
    found = read_json(os.path.join(directory, "log.cut")) or {}
    holes = found.get("holes")
    holes = holes if isinstance(holes, list) and len(holes) < 1000 else []
    ranges = [[whole(h[0]), whole(h[1])] for h in holes if isinstance(h, list) and len(h) == 2]
    return whole(found.get("generation")), sorted(r for r in ranges if r[0] < r[1])


def read_deadline(directory: str) -> float | None:
    """When an ordered stop is to be over, on this boot's monotonic clock. None: no stop was ordered."""
    found = read_json(os.path.join(directory, "stop.json"))
    if found is None:
        return None
    deadline = found.get("deadline")
    return float(deadline) if isinstance(deadline, (int, float)) and 0 <= deadline < 1e12 else 0.0


def fsync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: str, data: bytes, durable: bool = False) -> None:
    """Replace a file as a whole: a reader, or a crash, finds the old content or the new one, never a part."""
    temporary = "%s.new.%d" % (path, os.getpid())
    try:
        _fill(temporary, os.O_CREAT | os.O_TRUNC, data, durable)
        os.rename(temporary, path)
    except OSError:
        unlink(temporary)
        raise


def _fill(path: str, flags: int, data: bytes, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if not flags & os.O_TRUNC:
            os.ftruncate(fd, len(data))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_spares(directory: str, count: int = SPARES, size: int = SPARE_BYTES) -> None:
    """Set disk space aside for a run's last facts: files that exist already and only have to be overwritten."""
    for number in range(count):
        path = os.path.join(directory, "spare.%d" % number)
        if not os.path.exists(path):
            _fill(path, os.O_CREAT | os.O_TRUNC, bytes(size), False)


def make_host_spares(base: str) -> None:
    """Set disk space aside for what belongs to no run yet, while there is enough."""
    with contextlib.suppress(OSError):
        if free_bytes(base) >= disk_floor():
            make_spares(base, HOST_SPARES, HOST_SPARE_BYTES)


def spend_host_spare(base: str, directory: str = "") -> bool:
    """Move a spare into a run's directory, or delete one to free its space."""
    for number in range(HOST_SPARES):
        spare = os.path.join(base, "spare.%d" % number)
        try:
            if directory:
                os.rename(spare, os.path.join(directory, "spare.0"))
            else:
                os.unlink(spare)
            return True
        except FileNotFoundError:
            continue
    return False


def write_for_host(base: str, name: str, data: bytes, durable: bool = False) -> None:
    """write_with_spares with the spares of the host."""
    write_with_spares(base, name, data, durable, HOST_SPARES)


def write_with_spares(directory: str, name: str, data: bytes, durable: bool, spares: int = SPARES) -> None:
    """write_file, but on a full disk into one of the spares. Raises OSError when even that fails."""
    path = os.path.join(directory, name)
    try:
        write_file(path, data, durable)
        return
    except OSError as error:
        if error.errno not in FULL:
            raise
        problem = error
    for number in range(spares):
        spare = os.path.join(directory, "spare.%d" % number)
        try:
            _fill(spare, 0, data, durable)
            os.rename(spare, path)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = error
            unlink(spare)  # a copy-on-write file system needs new blocks: this frees some
    raise problem


def stored_number(path: str) -> int:
    """The number in a file; 0 if there is none."""
    try:
        return int(read_plain(path, 64))
    except (OSError, ValueError):
        return 0


def take_lock(path: str) -> int:
    """The lock as an open descriptor, or -1 when a living process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return -1


def disk_floor() -> int:
    """A host with fewer bytes free than this starts nothing: it could not even record how a run ended."""
    return int(os.environ.get("TRAINYARD_FLOOR_MB") or 16) << 20


def kept_free(path: str) -> int:
    """How much of a disk shipped files, unpacked archives and environments leave to the runs that write there."""
    found = os.statvfs(path)
    return max(disk_floor(), min(256 << 20, found.f_blocks * found.f_frsize // 20))


def free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def delete_tree(path: str) -> bool:
    """Delete a file or a directory, also one whose directories may not be written. Links are not followed. False where
    something stays: it belongs to somebody else, or is a mount."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return True
    except FileNotFoundError:
        return True
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return True
    _open_directories(path)
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_directories(path: str) -> None:
    """Let our own login read and write all directories of a tree."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)
    for top, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(top, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)


SECRETS = ("order.json", "stop.json", "control", "container.env")
PACKAGES = "packages"  # what the image of the run has installed (runtimes/packages.py)
SHARED_MEMORY = "shared.json"  # what the run made there (shared_memory.py)


def clean_directory(directory: str, with_packages: bool = True) -> None:
    """Delete what a closed run no longer needs. The order goes first: the environment in it may hold secrets.

    `with_packages`: it may take long. If not, they go with the directory when the run is forgotten."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # already deleted
    for name in names:
        if name in SECRETS or name == SHARED_MEMORY or name.startswith("spare.") or ".new." in name:
            unlink(os.path.join(directory, name))
    if with_packages:
        delete_tree(os.path.join(directory, PACKAGES))


def read_line(fd: int) -> bytes:
    """Read one line, byte by byte: what comes after it is not for the reader."""
    line = b""
    while len(line) < MAX_HEADER:
        byte = os.read(fd, 1)
        if byte in (b"\n", b"\r"):
            return line
        if not byte:
            raise WireError("the connection ended before the request")
        line += byte
    raise WireError("the request is over %d bytes" % MAX_HEADER)
