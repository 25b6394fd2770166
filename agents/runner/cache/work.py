"""What a preparation of the cache does: waits for the bytes that the console ships, then makes a tree or an
environment.

It is idempotent: an entry that is complete is reported at once, one that was begun is begun anew.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Tuple

from agents.runner.cache.environments import make_environment
from agents.runner.cache.put import have
from agents.runner.cache.python_environment import is_ready as is_environment_ready
from agents.runner.cache.store import BLOBS, ENVIRONMENTS, TREES, Cache
from agents.runner.cache.trees import make_tree
from agents.runner.home import Home, is_key
from agents.runner.preparations.long_programs import Unprepared

# The kinds of preparations, and where in the cache each has its entries.
KINDS = {"tree": TREES, "environment": ENVIRONMENTS}
LOOK_S = 0.1
# A console that ships nothing for so long is gone; the next one asks again.
SILENT_S = 900.0

Report = Callable[[int, int, str], None]


def is_prepared(home: Home, kind: str, key: str) -> bool:
    """Whether the entry is here and complete."""
    cache = Cache(home)
    return is_environment_ready(cache, key) if kind == "environment" else cache.has(KINDS[kind], key)


def prepare_entry(
    home: Home, kind: str, key: str, document: Dict[str, Any], output: str, report: Report
) -> Dict[str, Any]:
    """Make the entry `key`. Returns what is to be recorded of it. Raises Unprepared or OSError.

    `document`: `blobs`, the shipped files that are needed ([{sha256, size}]); for a tree `blob` or `git` (with
    `credential`); for an environment `packages`, `index`, `interpreter`. `output` is a file for what programs print.
    """
    cache = Cache(home)
    if kind not in KINDS or not is_key(key):
        raise Unprepared("host", "bad_request", "this runner prepares no %.40r" % (kind,))
    if not is_prepared(home, kind, key):
        wait_for_blobs(cache, blobs_of(document), report)
    with cache.locked(KINDS[kind], key):
        if kind == "tree":
            return make_tree(cache, key, document, str(document.get("credential") or ""), output, report)
        return make_environment(cache, key, document, output, report)


def blobs_of(document: Dict[str, Any]) -> List[Tuple[str, int]]:
    found = [(blob["sha256"], int(blob["size"])) for blob in document.get("blobs") or []]
    if not all(is_key(sha) for sha, _ in found):
        raise Unprepared("host", "bad_request", "a blob is named by its SHA-256")
    return found


def wait_for_blobs(cache: Cache, blobs: List[Tuple[str, int]], report: Report) -> None:
    """Wait until the console has shipped all of them, and tell how far it is."""
    total, before, grew_at = sum(size for _, size in blobs), -1, time.monotonic()
    while not all(cache.has(BLOBS, sha) for sha, _ in blobs):
        done = sum(min(size, have(cache, sha)) for sha, size in blobs)
        if done != before:
            report(done, total, "bytes")
            before, grew_at = done, time.monotonic()
        if time.monotonic() - grew_at > SILENT_S:
            text = "the console has shipped nothing for %d minutes" % (SILENT_S // 60)
            raise Unprepared("host", "not_shipped", text)
        time.sleep(LOOK_S)
