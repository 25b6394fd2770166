"""Trees: an archive that is unpacked, a repository that is checked out, or Python packages, in the cache."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict

from agents.runner.cache.archives import BadArchive
from agents.runner.cache.git_checkout import COMMIT, checkout
from agents.runner.cache.packages import lay_out
from agents.runner.cache.store import BLOBS, TREES, Cache
from agents.runner.cache.unpack import DiskFull, unpack
from agents.runner.files import FULL, delete_tree
from agents.runner.preparations.long_programs import Unprepared

Report = Callable[[int, int, str], None]


def make_tree(
    cache: Cache, key: str, document: Dict[str, Any], credential: str, output: str, report: Report
) -> Dict[str, Any]:
    """Make the tree, unless it is here. The caller holds its lock. Returns what is to be recorded. Raises Unprepared.

    `blob`: the SHA-256 of a shipped archive; or `git`: {url, revision}; or `packages`: [{sha256, name}].
    """
    path = cache.path(TREES, key)
    if cache.has(TREES, key):
        return commit_of(path)
    part = path + ".part"
    delete_tree(part)
    os.mkdir(part, 0o700)
    try:
        if document.get("git"):
            checkout(document["git"], credential, part, output, report)
        elif document.get("packages"):
            lay_out(cache, document["packages"], part)
        else:
            unpack_blob(cache, document["blob"], part, report)
        os.rename(part, path)
        return commit_of(path)
    except (DiskFull, OSError) as error:
        if isinstance(error, DiskFull) or error.errno in FULL:
            raise Unprepared("host", "disk_full", str(error)) from None
        raise
    finally:
        delete_tree(part)


def commit_of(path: str) -> Dict[str, Any]:
    """The commit of a checkout; nothing of an archive that was unpacked."""
    try:
        with open(os.path.join(path, ".git", "HEAD")) as file:
            commit = file.read(100).strip()
    except OSError:
        return {}
    return {"commit": commit} if COMMIT.match(commit) else {}


def unpack_blob(cache: Cache, blob: str, into: str, report: Report) -> None:
    try:
        with cache.locked(BLOBS, blob, shared=True), open(cache.path(BLOBS, blob), "rb") as file:
            unpack(file, into, report=lambda done, total: report(done, total, "bytes"))
    except BadArchive as error:
        raise Unprepared("user", "bad_archive", "the archive is not unpacked: %s" % error) from None
