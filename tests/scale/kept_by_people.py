"""What people and projects keep: views, templates, secrets, notification addresses, tokens, sessions. For seed.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from console.models import ApiToken, SavedView, Session
from jobs.models import (
    Job,
    JobTemplate,
    MachineType,
    Notification,
    NotificationTarget,
    Project,
    Quota,
    Secret,
)

EACH = 20
SENT = 2_000


def fill(
    people: Sequence[User], projects: Sequence[Project], document: dict[str, object], now: datetime
) -> None:
    """Each person and each project has twenty of everything."""
    owners = [{"user": user} for user in people] + [{"project": project} for project in projects]
    kept = [(owner, number) for owner in owners for number in range(EACH)]
    when = {"made_at": now, "changed_at": now, "changed_by": "user-0"}
    SavedView.objects.bulk_create(
        SavedView(
            **owner, name=f"view {number}", query="state=active&sort=-gpus", made_by="user-0", made_at=now
        )
        for owner, number in kept
    )
    JobTemplate.objects.bulk_create(
        JobTemplate(**owner, name=f"own-{number}", document=document, location_name="default", **when)
        for owner, number in kept
    )
    Secret.objects.bulk_create(
        Secret(**owner, name=f"TOKEN_{number}", sealed=b"sealed", **when) for owner, number in kept
    )
    MachineType.objects.bulk_create(
        MachineType(name=f"own-{number}", cpus=4, memory_mb=16_000, changed_at=now, changed_by="user-0")
        for number in range(EACH)
    )
    Quota.objects.bulk_create(
        Quota(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=10_000)
        for project in projects
    )
    _logins(people, now)
    _notifications(owners, now)


def _logins(people: Sequence[User], now: datetime) -> None:
    until = now + timedelta(days=30)
    ApiToken.objects.bulk_create(
        ApiToken(
            user=user,
            name=f"script {number}",
            digest=f"{user.pk:032}{number:032}",
            created_at=now,
            expires_at=until,
        )
        for user in people
        for number in range(EACH)
    )
    Session.objects.bulk_create(
        Session(
            user=user,
            session_key=f"{user.pk:020}{number:012}",
            session_data="",
            expire_date=until,
            made_at=now,
            seen_at=now,
            address="192.0.2.7",
            agent="Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
        )
        for user in people
        for number in range(EACH)
    )


def _notifications(owners: Sequence[dict[str, object]], now: datetime) -> None:
    targets = NotificationTarget.objects.bulk_create(
        NotificationTarget(
            **owner,
            way="hook",
            sealed=b"sealed",
            shown=f"https://hooks.example.org/{number}/…",
            events=["failed", "succeeded"],
            created_at=now,
            created_by="user-0",
        )
        for owner in owners
        for number in range(3)
    )
    jobs = Job.objects.order_by("-pk")[:SENT]
    Notification.objects.bulk_create(
        Notification(
            target=target,
            key=f"{job.pk}-failed",
            event="failed",
            job=job,
            text={"title": f"{job.display_name} failed", "text": "It exited with 1.", "data": {}},
            made_at=now,
            sent_at=now,
        )
        for target in (targets[0], targets[3], targets[-1])
        for job in jobs
    )
