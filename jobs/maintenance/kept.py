"""What an admin may do with what a host keeps: have it removed, if no job needs it. The host itself looks once more.

The order is a row first; the host's dispatcher carries it out. The caller owns the transaction.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.hosts import host_history, kept
from agents.infra.refusals import Refused
from agents.infra.texts import Text, said
from agents.models import Discard, Host, HostKept
from jobs.preparations.kept import uses_of
from jobs.projects import audit
from jobs.wake import hints

# As the host's history has it, which members of other projects read. Removals are told apart by their numbers, and the
# audit has the digest of each.
_TITLES: dict[str, Text] = {
    kept.BLOBS: said("a shipped file"),
    kept.TREES: said("code"),
    kept.ENVIRONMENTS: said("a Python environment"),
    kept.IMAGES: said("an image of Apptainer"),
    "podman": said("an image of podman"),
    "docker": said("an image of Docker"),
}


def discard(host: Host, kind: str, key: str, actor: str, now: datetime) -> None:
    """Have the host remove it. Raises Refused, with the reason."""
    row = HostKept.objects.filter(host=host).first()
    entry = next((each for each in kept.entries_of(row) if each[:2] == (kind, key)), None) if row else None
    if host.retired_at is not None or entry is None:
        raise Refused("key", said("The host keeps no such thing (any more)."))
    live = sorted(use.job for use in uses_of(host, [(kind, key)]).get((kind, key), ()) if use.live)
    if live:
        raise Refused(
            "key", said("It stays: job {ids} needs it.", ids=", ".join(str(job) for job in live[:8]))
        )
    if entry.in_use:
        raise Refused("key", said("It stays: something on the host uses it now."))
    asked = {"title": _TITLES[kind], "asked_at": now, "asked_by": actor[:150]}
    removal, _ = Discard.objects.update_or_create(host=host, kind=kind, key=key, defaults=asked)
    removal.title = said("{what} (removal {number})", what=_TITLES[kind], number=removal.pk)
    removal.save(update_fields=["title"])
    host_history.record(host.pk, "discard", removal.title, actor, now)
    what = {"kind": kind, "key": key, "removal": removal.pk}
    audit.record(actor, "host.discard", "host", host.name, what, None, now)
    transaction.on_commit(lambda: hints.watch([host.pk]))
