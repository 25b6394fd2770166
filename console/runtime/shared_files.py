"""Notes at start about files that all machines of a deployment share: `keys/` and `logs/` (docs/operating.md)."""

from __future__ import annotations

from collections.abc import Iterator

from agents.ssh import keys
from jobs.logs import storage
from jobs.models import LogSegment


def notes() -> Iterator[str]:
    """Trainyard starts all the same: the files may be lost, and everything else goes on."""
    try:
        keys.check_private_key()
    except keys.KeyUnreadable as problem:
        yield f"{problem} On another machine of the deployment, copy its keys/ here. Until then no host is reached."
    newest = LogSegment.objects.order_by("-pk").values_list("key", flat=True).first()
    if newest is not None and not storage.exists(newest):
        yield (
            "logs/ lacks files that the database names: those logs cannot be read from here. With several machines,"
            " put logs/ on storage that all of them share; after a restore, restore logs/ too."
        )
