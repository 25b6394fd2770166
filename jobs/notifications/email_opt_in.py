"""Whether an e-mail address wants to be told: it is asked by a one-time link, and told nothing else before.

The link is in the letter and nowhere else: whoever gave the address must not see it. Until the letter is sent it is
stored with the address, encrypted; what it is compared with is a digest.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from agents.infra.refusals import Exhausted, Refused
from agents.infra.secrets import decrypt, encrypt
from jobs.models import Notice, NoticeTarget, Tick
from jobs.models.notices import Way
from jobs.notifications import targets
from jobs.projects import audit
from jobs.rules.notifications import PROOF

LASTS = timedelta(days=7)
DAY = timedelta(days=1)
# Letters to addresses that did not ask for them, of one person or project in a day.
MAX_A_DAY = 20
OWNER = "its owner"


def send_letter(target: NoticeTarget, base: str, actor: str, now: datetime) -> None:
    """A letter with a new link; an older one works no more. `base`: where people reach this deployment."""
    if target.proved_at is not None or target.way != Way.MAIL:
        raise Refused("address", f"{target.shown} is told already.")
    token = secrets.token_urlsafe(32)
    link = f"{settings.TRAINYARD.url or base.rstrip('/')}/notified/{token}"
    with transaction.atomic():
        _count(target, now)
        target.sealed = encrypt({**decrypt(target.sealed), "link": link})
        target.proof_digest, target.proof_asked_at = _digest(token), now
        target.save(update_fields=["sealed", "proof_digest", "proof_asked_at"])
        Notice.objects.filter(target=target, event=PROOF, due_at__isnull=False).delete()
        key = f"{PROOF}:{now.isoformat()}"
        Notice.objects.create(
            target=target, key=key, event=PROOF, text=_letter(target, actor), made_at=now, due_at=now
        )


def target_of_link(token: str, now: datetime) -> NoticeTarget | None:
    """Whom this link is about, while it works."""
    rows = NoticeTarget.objects.select_related("user", "project")
    return rows.filter(proof_digest=_digest(token), proof_asked_at__gt=now - LASTS).first()


def accept(target: NoticeTarget, now: datetime) -> None:
    _prove(target, OWNER, now)


def refuse(target: NoticeTarget, now: datetime) -> None:
    """Whoever reads the letters there does not want any."""
    targets.remove(target, OWNER, now)


def vouch(target: NoticeTarget, actor: str, now: datetime) -> None:
    """An admin of the deployment knows whose address it is."""
    with transaction.atomic():
        if not _prove(target, actor, now):
            raise Refused("address", f"{target.shown} is told already.")
        kind = "project" if target.project else "user"
        subject = target.project.name if target.project else str(target.user)
        audit.record(actor, "notice.vouch", kind, subject, None, targets.told(target), now, target.project)


def _prove(target: NoticeTarget, by: str, now: datetime) -> bool:
    sealed = {name: value for name, value in decrypt(target.sealed).items() if name != "link"}
    row = NoticeTarget.objects.filter(pk=target.pk, proved_at=None, proof_digest=target.proof_digest)
    with transaction.atomic():
        if not row.update(proved_at=now, proved_by=by[:150], proof_digest="", sealed=encrypt(sealed)):
            return False
        Notice.objects.filter(target=target, event=PROOF, due_at__isnull=False).delete()
    return True


def _count(target: NoticeTarget, now: datetime) -> None:
    whose = f"u{target.user_id}" if target.user_id else f"p{target.project_id}"
    Tick.objects.get_or_create(name=f"proofs-{whose}", defaults={"at": now})
    row = Tick.objects.select_for_update().get(name=f"proofs-{whose}")
    if now - row.at >= DAY:
        row.at, row.serial = now, 0
    if row.serial >= MAX_A_DAY:
        raise Exhausted("address", f"{MAX_A_DAY} addresses were asked in a day. Try again tomorrow.")
    row.serial += 1
    row.save(update_fields=["at", "serial"])


def _letter(target: NoticeTarget, actor: str) -> dict[str, object]:
    about = (
        f"every job of the project {target.project.name}" if target.project else f"the jobs of {target.user}"
    )
    text = (
        f"{actor} wants Trainyard to tell this address about {about}. If you want that, follow this link and say so; "
        f"it works once, for {LASTS.days} days. If not, do nothing: nothing else is sent to you."
    )
    return {"title": "Trainyard: shall notices come here?", "text": text, "url": "", "data": {}}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
