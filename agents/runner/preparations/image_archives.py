"""An image that lies in the storage of the console: an archive, or a SIF file, shipped to this host and loaded once.

It is known by the SHA-256 of its bytes, and kept by the engine under a name that has it (`image`).
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from typing import Any, Dict, Iterator

from agents.runner.cache.images import find_image
from agents.runner.cache.store import BLOBS, Cache
from agents.runner.cache.work import blobs_of, wait_for_blobs
from agents.runner.files import free_bytes, kept_free, unlink
from agents.runner.home import Home
from agents.runner.preparations.apptainer_images import Check, described, prepare_in_cache
from agents.runner.preparations.archive_contents import OF_DOCKER, OF_OCI, Contents, read_contents
from agents.runner.preparations.long_programs import Unprepared
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.preparations.sif import has_magic, prepare_shipped_sif
from agents.runner.runtimes.engine_commands import APPTAINER, DOCKER
from agents.runner.runtimes.loaded_images import OURS

_PACKED, _PIECE = b"\x1f\x8b", 1 << 20


@contextlib.contextmanager
def shipped_archive(what: Dict[str, Any], report: Report, home: Home) -> Iterator[str]:
    """Wait for the file, and hold it. Yields its path. Raises Failed."""
    cache, archive = Cache(home), str(what["archive"])
    try:
        wait_for_blobs(cache, blobs_of(what), report.progress)
    except Unprepared as error:
        raise Failed(HOST, str(error)) from None
    with cache.locked(BLOBS, archive, shared=True):
        path, own = cache.path(BLOBS, archive), os.path.join(report.directory, "image.tar")
        try:
            yield unpacked(path, own, report) if is_packed(path) else path
        finally:
            unlink(own)


def is_packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_PACKED)) == _PACKED


def unpacked(path: str, into: str, report: Report) -> str:
    """Not all versions of engines read packed archives (podman 4.3, Apptainer 1.4): they are given it without."""
    report.message("unpacking the archive")
    done, total = 0, os.stat(path).st_size
    try:
        with open(path, "rb") as packed, gzip.open(packed) as file, open(into, "wb") as out:
            for piece in iter(lambda: file.read(_PIECE), b""):
                out.write(piece)
                done += len(piece)
                report.progress(min(packed.tell(), total), total)
                if done % (64 * _PIECE) < _PIECE and free_bytes(into) < kept_free(into) // 2:
                    raise Failed(HOST, "the disk of this host is full")
    except (EOFError, OSError, zlib.error) as error:
        if getattr(error, "errno", None):
            raise
        raise Failed(USER, "the archive holds no image: %s" % error) from None
    return into


def prepare_archive_for_apptainer(
    what: Dict[str, Any], program: str, report: Report, home: Home, check: Check
) -> Dict[str, str]:
    """The same as `prepare_image`."""
    cache, image = Cache(home), str(what["image"])
    here = find_image(cache, image)
    if here:
        return described(cache, here)
    with shipped_archive(what, report, home) as path:
        if has_magic(path):
            return prepare_shipped_sif(what, path, program, report, home, check)
        check_archive(path, APPTAINER)
        return prepare_in_cache({**what, "archive": path}, program, report, home, check)


def check_archive(path: str, engine: str) -> Contents:
    """What the archive holds. Says what is wrong with one that this engine could not load: engines say it in many ways,
    or not at all."""
    if has_magic(path):
        raise Failed(USER, "it is a SIF file, which apptainer alone runs: name it as the runtime")
    contents = read_contents(path)
    lists = contents.images
    if not lists:
        raise Failed(USER, "the archive holds no image: neither manifest.json nor index.json is in it")
    images = lists.get(OF_DOCKER) or lists.get(OF_OCI) or []
    if len(images) > 1:
        raise Failed(USER, "the archive holds %d images: save one alone" % len(images))
    if any(OURS in name for name in contents.names()):
        raise Failed(USER, "the archive calls its image %s:…, which names other bytes: tag it anew" % OURS)
    if engine == DOCKER and OF_DOCKER not in lists:
        words = (
            "the archive has OCI's form, which docker does not read: save it by docker save, or podman save"
        )
        raise Failed(USER, words)
    return contents
