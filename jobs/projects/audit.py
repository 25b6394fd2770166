"""The audit: one row for each change that an admin makes, written in the transaction of the change."""

from __future__ import annotations

from datetime import datetime

from jobs.models import AuditEntry, Project


def record(
    actor: str,
    what: str,
    subject_kind: str,
    subject: str,
    before: object,
    after: object,
    now: datetime,
    project: Project | None = None,
) -> None:
    """Record a change. `what` is a noun and a verb (quota.set); `before` and `after` are JSON values or None."""
    AuditEntry.objects.create(
        at=now,
        actor=actor[:150],
        what=what[:40],
        subject_kind=subject_kind[:20],
        subject=subject[:200],
        project=project,
        before=before,
        after=after,
    )
