"""What each host keeps for the runs to come, as its runner tells: shipped files, trees, environments, images. And what
an admin has it remove."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from agents.hosts import host_history
from agents.infra import untrusted
from agents.infra.text import clean_text
from agents.infra.texts import said
from agents.models import Discard, Host, HostKept

# As on the wire. Images that an engine has loaded or pulled are of the kind of the engine.
BLOBS, TREES, ENVIRONMENTS, IMAGES = "blobs", "trees", "environments", "images"
ENGINES = ("podman", "docker")
KINDS = (BLOBS, TREES, ENVIRONMENTS, IMAGES, *ENGINES)
MAX_ENTRIES, MAX_BYTES = 300, 1 << 50
_KEY = re.compile(r"[0-9a-f]{64}\Z")


class Entry(NamedTuple):
    """One thing that a host keeps. Times are those of the host's clock; `size` is None where nobody has measured it."""

    kind: str
    key: str
    size: int | None
    since: datetime | None
    used: datetime | None
    in_use: bool


def record(host_id: int, token: int, report: Mapping[str, Any], now: datetime) -> bool:
    """Store what the holder of the lease was told. Nothing is decided by it, so it returns False."""
    if not _has_lease(host_id, token):
        return False
    found = report.get("kept")
    entries = [line for line in found[:MAX_ENTRIES] if _is_entry(line)] if isinstance(found, list) else []
    left_out = untrusted.whole_number(report.get("left_out"), 0, 1_000_000) or 0
    row = HostKept(host_id=host_id, at=now, entries=entries, left_out=left_out)
    columns = ["at", "entries", "left_out"]
    HostKept.objects.bulk_create([row], update_conflicts=True, unique_fields=["host"], update_fields=columns)
    return False


def record_discarded(host_id: int, token: int, answer: Mapping[str, Any], now: datetime) -> bool:
    """Record what became of something that the host was to remove. An answer that nobody asked for is ignored."""
    with transaction.atomic():
        asked = Discard.objects.select_for_update().filter(
            host_id=host_id,
            kind=untrusted.text(answer.get("kind"), 20),
            key=untrusted.text(answer.get("key"), 64),
        )
        rows = list(asked) if _has_lease(host_id, token) else []
        why = clean_text(answer.get("why", ""), 300)
        for row in rows:
            if why:
                text = said("{what}: {why}", what=row.title, why=why)
                host_history.record(host_id, "kept", text, row.asked_by, now)
            else:
                host_history.record(host_id, "discarded", row.title, row.asked_by, now)
            row.delete()
    return bool(rows)


def to_discard(host_id: int) -> list[tuple[str, str]]:
    """The oldest that wait."""
    return list(Discard.objects.filter(host=host_id).order_by("pk").values_list("kind", "key")[:50])


def give_up(host_id: int, silent: Sequence[tuple[str, str]], now: datetime) -> None:
    """The host was asked for these, and has answered nothing for an hour (agents/links/host_watch.py)."""
    for kind, key in silent:
        for row in Discard.objects.filter(host=host_id, kind=kind, key=key):
            text = said("{what}: the host did not answer in an hour.", what=row.title)
            host_history.record(host_id, "kept", text, row.asked_by, now)
            row.delete()


def entries_of(row: HostKept) -> list[Entry]:
    return [
        Entry(kind, key, size, untrusted.timestamp(since), untrusted.timestamp(used), in_use)
        for kind, key, size, since, used, in_use in row.entries
    ]


def _has_lease(host_id: int, token: int) -> bool:
    return Host.every.filter(pk=host_id, lease_token=token).exists()


def _is_entry(line: object) -> bool:
    if not isinstance(line, list) or len(line) != 6:
        return False
    kind, key, size, since, used, in_use = line
    return (
        kind in KINDS
        and isinstance(key, str)
        and _KEY.match(key) is not None
        and (size is None or untrusted.whole_number(size, 0, MAX_BYTES) is not None)
        and all(untrusted.timestamp(each) is not None for each in (since, used))
        and isinstance(in_use, bool)
    )
