"""The key that a machine shows and nobody has accepted: stored while the machine shows it, for a person to judge."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.hosts import host_history
from agents.infra.texts import said
from agents.models import Host
from agents.ssh.host_keys import fingerprint, same_key


@transaction.atomic
def store(host: Host, at: str, offered: str, now: datetime) -> bool:
    """Store an offered key and record it once, even if two checks of the host run at the same time. False if a person
    has accepted it since this check began: it would be shown as a changed key for ever."""
    row = Host.every.select_for_update().filter(pk=host.pk).first()
    if row is None:
        return True
    accepted = row.jump_keys.get(at, "") if at else row.pinned_key
    if accepted and same_key(accepted, offered):
        return False
    if (row.offered_key, row.offered_at) != (offered, at):
        Host.every.filter(pk=host.pk).update(offered_key=offered, offered_at=at, last_error="")
        host_history.record(
            host.pk, "key_offered", f"{fingerprint(offered)} of {at or host.address}", "trainyard", now
        )
    return True


@transaction.atomic
def forget(dialled: Host, now: datetime) -> bool:
    """Forget the offered key, because the keys that `dialled` has as accepted are shown now. True if there was one.

    A key that was accepted since `dialled` was read is another one, so what was shown then says nothing about it.
    """
    row = Host.every.select_for_update().filter(pk=dialled.pk).exclude(offered_key="").first()
    if row is None or (row.pinned_key, row.jump_keys) != (dialled.pinned_key, dialled.jump_keys):
        return False
    accepted = row.jump_keys.get(row.offered_at, "") if row.offered_at else row.pinned_key
    if not accepted:
        return False
    Host.every.filter(pk=row.pk).update(offered_key="", offered_at="")
    text = said(
        "{machine} shows the accepted key {accepted} again, and {offered} no more.",
        machine=row.offered_at or row.address,
        accepted=fingerprint(accepted),
        offered=fingerprint(row.offered_key),
    )
    host_history.record(row.pk, "key_back", text, "trainyard", now)
    return True
