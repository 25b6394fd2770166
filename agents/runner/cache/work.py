"""What a preparation of the cache does: waits for the bytes that the console ships, then makes a tree or an
environment.

It is idempotent: an entry that is complete is reported at once, one that was begun is begun anew.
"""

from __future__ import annotations

import os
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
# A console that ships nothing for so long is gone; the next one asks again. One that is there has others to ship to
# first perhaps, and is waited for longer.
SILENT_S, BUSY_S = 900.0, 6 * 3600.0

Report = Callable[[int, int, str], None]


def is_prepared(home: Home, kind: str, key: str) -> bool:
    """Whether the entry is here and complete."""
    cache = Cache(home)
    return is_environment_ready(cache, key) if kind == "environment" else cache.has(KINDS[kind], key)


def prepare_entry(
    home: Home, kind: str, key: str, document: Dict[str, Any], output: str, report: Report
) -> Dict[str, Any]:
    """Make the entry `key`. Returns what is to be recorded of it. Raises Unprepared or OSError.

    `document`: `blobs`, the shipped files that are needed ([{sha256, size}]); for a tree `blob`, `packages` or `git`
    (with `credential`); for an environment `packages`, `index`, `interpreter`. `output` is a file for what programs
    print.
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
    sign, signed_at = None, grew_at
    while not all(cache.has(BLOBS, sha) for sha, _ in blobs):
        done = sum(min(size, have(cache, sha)) for sha, size in blobs)
        if done != before:
            report(done, total, "bytes")
            before, grew_at = done, time.monotonic()
        if sign != sign_of_console(cache):
            sign, signed_at = sign_of_console(cache), time.monotonic()
        for since, patience_s in ((max(grew_at, signed_at), SILENT_S), (grew_at, BUSY_S)):
            if time.monotonic() - since > patience_s:
                text = "the console has shipped nothing for %d minutes" % (patience_s // 60)
                raise Unprepared("host", "not_shipped", text)
        time.sleep(LOOK_S)


def sign_of_console(cache: Cache) -> Any:
    """Another value for as long as a console talks to this host: serve writes down its mark every ten seconds or so."""
    try:
        return os.stat(os.path.join(os.path.dirname(cache.base), "mark")).st_mtime_ns
    except OSError:
        return None
