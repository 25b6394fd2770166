"""Old objects of buckets whose project says for how many days objects are kept. The housekeeping deletes the others."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from agents import time_doubt
from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.artifacts import needs, objects, room
from jobs.artifacts.buckets import KIND
from jobs.models import Bucket, StoredObject
from jobs.projects import audit

MOST_DAYS = 36_500
BATCH = 500
# By whom the audit says that objects were deleted.
ACTOR = "age rule"


def set_rule(bucket: Bucket, days: int | None, actor: str, now: datetime) -> None:
    """Keep objects for so many days, or for ever. In the caller's transaction. Raises Refused."""
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise Refused(
            "keepDays",
            said("keepDays must be a whole number of days from 1 to {most}, or null.", most=MOST_DAYS),
        )
    row = Bucket.objects.select_for_update(no_key=True).get(pk=bucket.pk)
    if row.keep_days != days:
        before = row.keep_days
        row.keep_days = bucket.keep_days = days
        row.save(update_fields=["keep_days"])
        audit.record(actor, "bucket.keep", KIND, row.name, before, days, now, bucket.project)


def waits(now: datetime) -> str:
    """Why nothing is deleted by its age at this moment, whatever the rules say; empty where it is."""
    return time_doubt.why(now)


def expire(now: datetime) -> int:
    """Delete the objects that are older than their bucket keeps them. Returns how many there were.

    What a job needs that is not over stays, and so does everything while ages may not be believed.
    """
    if waits(now):
        return 0
    deleted = 0
    for bucket in Bucket.objects.exclude(keep_days=None).select_related("project"):
        last: int | None = 0
        while last is not None:
            last, gone = _expire_some(bucket, last, now)
            deleted += gone
    return deleted


def _expire_some(bucket: Bucket, after: int, now: datetime) -> tuple[int | None, int]:
    """Those of the next rows. Returns the last row that was looked at, and how many were deleted."""
    with transaction.atomic():
        room.lock(bucket.project_id)
        # The rule may have been changed meanwhile, and objects replaced.
        days = Bucket.objects.filter(pk=bucket.pk).values_list("keep_days", flat=True).first()
        if days is None:
            return None, 0
        old = StoredObject.objects.filter(bucket=bucket, created_at__lte=now - timedelta(days=days))
        found = list(old.filter(pk__gt=after).select_related("blob", "bucket").order_by("pk")[:BATCH])
        if not found:
            return None, 0
        needed = needs.of_jobs(bucket, found)
        rows = [row for row in found if row.pk not in needed]
        for row in rows:
            objects.remove(row, now)
        if rows:
            audit.record(
                ACTOR, "bucket.expire", KIND, bucket.name, None, {"objects": len(rows)}, now, bucket.project
            )
    return found[-1].pk, len(rows)
