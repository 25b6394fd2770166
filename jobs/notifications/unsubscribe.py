"""The link in each e-mail that stops further ones, for readers and for mail programs with a button (RFC 8058).

The link is signed and kept nowhere. It works as long as the address is notified. It can do nothing but stop letters.
"""

from __future__ import annotations

from django.conf import settings
from django.core import signing

from jobs.models import NotificationTarget

SALT = "trainyard.unsubscribe"


def link(target: NotificationTarget) -> str:
    """The address that stops letters to this target; empty where nobody knows how people reach this deployment."""
    base = settings.TRAINYARD.url
    return f"{base}/unsubscribe/{_signer().sign(_name(target))}" if base else ""


def headers(target: NotificationTarget) -> dict[str, str]:
    """The headers by which a mail program shows a button. Only an https address may be asked without a page."""
    address = link(target)
    if not address:
        return {}
    one_click = {"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return {"List-Unsubscribe": f"<{address}>", **(one_click if address.startswith("https:") else {})}


def is_ours(token: str) -> bool:
    return _named(token) is not None


def target_of(token: str) -> NotificationTarget | None:
    """The target that the link is for; None if it is removed, or if the link is none of ours."""
    name = _named(token)
    if name is None:
        return None
    rows = NotificationTarget.objects.select_related("user", "project")
    row = rows.filter(pk=int(name.partition("-")[0])).first()
    return row if row is not None and _name(row) == name else None


def _name(target: NotificationTarget) -> str:
    """With its time, so that a later target with the same number has another link."""
    return f"{target.pk}-{int(target.created_at.timestamp())}"


def _named(token: str) -> str | None:
    try:
        return _signer().unsign(token)
    except signing.BadSignature:
        return None


def _signer() -> signing.Signer:
    return signing.Signer(salt=SALT)
