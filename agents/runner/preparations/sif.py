"""An image that is a SIF file of this host, or of storage that it shares: unpacked into the cache, as it is.

The file is read with the rights of the login. Its SHA-256 is the ID of the image, so hosts with other bytes under the
same path are found out. It is read again only when it was changed. It is opened once, and the path is looked at again
after the bytes were read, and after they were unpacked: it may lead to another file then.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from typing import Any, BinaryIO, Dict

from agents.runner.cache.images import find_image, key_of, read_note, write_note
from agents.runner.cache.store import IMAGES, Cache
from agents.runner.home import Home
from agents.runner.preparations.apptainer_images import Check, Fetching, described
from agents.runner.preparations.report import HOST, USER, Failed, Report

# No shell, option or list of Apptainer's takes such a path for anything else.
_PATH = re.compile(r"(?:/[A-Za-z0-9_+=@~-][A-Za-z0-9._+=@~-]*)+", re.ASCII)
_ENDING = ".sif"
# How a SIF file begins. Apptainer takes any other file for a definition of an image, with commands for this host: it
# is never given one, and told to run no commands.
_MAGIC = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"
_NO_COMMANDS = ("--section", "none")
_PIECE = 1 << 20
_CHANGED = "%s was changed while it was read"
# What the maker of the file wrote as its program. It reads the variables of the file by itself.
RUNSCRIPT = "/.singularity.d/runscript"
_WRONG = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def has_magic(path: str) -> bool:
    """Whether the file begins as a SIF file does."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_sif(image: str) -> bool:
    return len(image) <= 1000 and image.endswith(_ENDING) and _PATH.fullmatch(image) is not None


def prepare_sif(
    what: Dict[str, Any], program: str, report: Report, home: Home, check: Check
) -> Dict[str, str]:
    """The same as `prepare_image`. A file that is gone, or closed to the login by now, is not run from the cache, but
    for runs of a job that had it before."""
    cache, path = Cache(home), str(what["image"])
    if what.get("id") and find_image(cache, str(what["id"])):
        return described(cache, str(what["id"]))
    with cache.locked(IMAGES, key_of(path)), open_file(path) as file:
        here, note, stamp = find_image(cache, path), read_note(cache, path), stamp_of(os.fstat(file.fileno()))
        if here and note.get("asked") == stamp:
            return described(cache, here, note)
        key = digest_of_file(file, path, report)
        # Apptainer is given the path, and the path may lead to another file by now.
        if not is_still(path, stamp):
            raise Failed(HOST, _CHANGED % path)
        if not find_image(cache, key):
            Unpacking(cache, what, program, report, check).unpack(key, stamp)
        write_note(cache, path, {"id": key, "digest": "", "asked": stamp})
    return described(cache, key)


def prepare_shipped_sif(
    what: Dict[str, Any], path: str, program: str, report: Report, home: Home, check: Check
) -> Dict[str, str]:
    """The same of a file of the cache: what was shipped has its SHA-256 (`archive`). The caller holds its lock."""
    cache, image, key = Cache(home), str(what["image"]), str(what["archive"])
    with cache.locked(IMAGES, key_of(path)):
        if not find_image(cache, key):
            file = {**what, "image": path, "archive": ""}
            Unpacking(cache, file, program, report, check).unpack(key, stamp_of(os.stat(path)))
    with cache.locked(IMAGES, key_of(image)):
        write_note(cache, image, {"id": key, "digest": "", "asked": ""})
    return described(cache, key)


class Unpacking(Fetching):
    options = _NO_COMMANDS

    def unpack(self, key: str, stamp: str) -> None:
        if shutil.which("unsquashfs") is None:
            raise Failed(HOST, "unsquashfs is not installed on this host: install squashfs-tools")
        self.clean()
        os.makedirs(self.part, 0o700)
        try:
            self.make_tmp()
            self.build()
            if not is_still(self.image, stamp):
                raise Failed(HOST, _CHANGED % self.image)
            own = {"entrypoint": [RUNSCRIPT], "cmd": [], "workdir": "/", "own_variables": True}
            self.keep({"id": key, "digest": "", "env": [], **own})
        finally:
            self.clean()

    def source(self) -> str:
        return self.image

    def forget_variables(self, root: str) -> None:
        """Those of a SIF file are set by its own scripts, before those of the run."""


def open_file(path: str) -> BinaryIO:
    """A plain file. Raises Failed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        words = "%s cannot be read by the login of this host: %s" % (path, os.strerror(error.errno or 0))
        raise Failed(USER if error.errno in _WRONG else HOST, words) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Failed(USER, "%s is no plain file" % path)
    return open(fd, "rb", buffering=0)


def stamp_of(found: os.stat_result) -> str:
    """Names one file, and changes with its bytes."""
    parts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return " ".join(map(str, parts))


def is_still(path: str, stamp: str) -> bool:
    """Whether the path leads to the file of this stamp, with the same bytes as then."""
    try:
        return stamp_of(os.stat(path)) == stamp
    except OSError:
        return False


def digest_of_file(file: BinaryIO, path: str, report: Report) -> str:
    report.message("reading %s" % path)
    hashed, done = hashlib.sha256(), 0
    total = os.fstat(file.fileno()).st_size
    try:
        if os.pread(file.fileno(), len(_MAGIC), 0) != _MAGIC:
            raise Failed(USER, "%s is no SIF file" % path)
        for piece in iter(lambda: file.read(_PIECE), b""):
            hashed.update(piece)
            done += len(piece)
            report.progress(done, total)
    except OSError as error:
        raise Failed(HOST, "%s: %s" % (path, os.strerror(error.errno or 0))) from None
    return hashed.hexdigest()
