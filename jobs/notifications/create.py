"""Create notifications: one for each event and each target that asked for the event.

The history is the outbox: a line of history is committed together with the change that it describes, so a process that
dies afterwards loses no event. This module reads the lines by id. It reads each line again for longer than any
transaction lasts, because a transaction that began early and committed late would be missed otherwise. A notification
that exists already is not created again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Max, Q, QuerySet

from agents.infra.refusals import Refused
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import join, said
from jobs.models import (
    Job,
    Membership,
    Notification,
    NotificationTarget,
    Project,
    Role,
    Tick,
    Transition,
    TuningJob,
)
from jobs.rules.lifecycle import history_kinds
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.notifications import (
    ACCOUNT,
    EVENTS,
    FILE_STORAGE,
    FLAGS,
    KINDS,
    LOG_STORAGE,
    STUDY,
    TEST,
    event_of,
)

log = logging.getLogger(__name__)

# A line is read again for so long after its id was first passed. No transaction of ours lasts a tenth of it.
READ_AGAIN_FOR = timedelta(seconds=60)
# Waiting jobs of one target: an owner of so many waiting jobs needs no more notifications to know.
MAX_WAITING = 500
LOW, HIGH = "notifications-low", "notifications-high"

# pairs (user id, project id)
Members = frozenset[tuple[int, int]]


def _is_event() -> Q:
    """The lines of history that somebody may want to be notified of."""
    ends = Q(subject=history_kinds.JOB, to_state__in=TERMINAL)
    flags = Q(subject=history_kinds.FLAGGED, to_state__in=FLAGS)
    return ends | flags | Q(kind__in=KINDS)


_cursors = SelectStatement(
    lambda: Tick.objects.filter(name__in=(LOW, HIGH)).order_by().values_list("name", "at", "serial")
)
_new_lines = SelectStatement(
    lambda: Transition.objects.filter(_is_event(), pk__gt=Parameter("low")).order_by().values_list("pk")[:1]
)


def create_from_history(now: datetime) -> None:
    """Create the notifications of the lines that were written since the last call."""
    low = _cursor(now)
    if not _new_lines(low=low):
        return
    targets = _active()
    if not targets:
        return
    members = _members(targets)
    lines = _lines(low, targets)
    _save([created for line in lines for created in _for_targets(line, targets, members, now)])


def _active() -> list[NotificationTarget]:
    rows = NotificationTarget.objects.filter(
        Q(user=None) | Q(user__is_active=True), confirmed_at__isnull=False
    )
    return list(rows.select_related("user"))


def _members(targets: Sequence[NotificationTarget]) -> Members:
    """Which of the people with a target belongs to which project."""
    people = {target.user_id for target in targets if target.user_id}
    return frozenset(Membership.objects.filter(user__in=people).values_list("user", "project"))


def _about(target: NotificationTarget, job: Job | TuningJob, members: Members) -> bool:
    """A project is notified of all its jobs and studies; a person only of their own that they may still see."""
    if target.user is None:
        return target.project_id == job.project_id
    may_see = target.user.is_superuser or (target.user.pk, job.project_id) in members
    return target.user.pk == job.owner_id and may_see


def _cursor(now: datetime) -> int:
    """Lines up to this id were read for long enough. The first call ever skips all lines that exist."""
    read = {name: (at, serial) for name, at, serial in _cursors()}
    if len(read) == 2 and now - read[HIGH][0] < READ_AGAIN_FOR:
        return int(read[LOW][1])
    newest = Transition.objects.aggregate(Max("pk"))["pk__max"] or 0
    low, _ = Tick.objects.get_or_create(name=LOW, defaults={"at": now, "serial": newest})
    high, _ = Tick.objects.get_or_create(name=HIGH, defaults={"at": now, "serial": newest})
    if now - high.at >= READ_AGAIN_FOR:
        Tick.objects.filter(pk=low.pk, serial__lt=high.serial).update(serial=high.serial, at=now)
        Tick.objects.filter(pk=high.pk, at=high.at).update(serial=newest, at=now)
        return high.serial
    return low.serial


def _lines(low: int, targets: Sequence[NotificationTarget]) -> QuerySet[Transition]:
    """Lines of events that can be notified, of jobs that some target asked about."""
    people = {target.user_id for target in targets if target.user_id}
    projects = {target.project_id for target in targets if target.project_id}
    rows = Transition.objects.filter(_is_event(), pk__gt=low)
    rows = rows.filter(Q(job__owner__in=people) | Q(job__project__in=projects))
    return rows.select_related("job", "job__project").order_by("pk")


def _for_targets(
    line: Transition, targets: Iterable[NotificationTarget], members: Members, now: datetime
) -> Iterable[Notification]:
    event = event_of(line.kind, line.subject, line.to_state)
    for target in targets:
        asked = event in target.events and target.confirmed_at is not None and line.at >= target.confirmed_at
        if asked and _about(target, line.job, members):
            # All replicas that one decision restarts share one notification.
            key = f"{event}:{line.job_id}:{line.at.isoformat()}"
            yield _notification(target, key, event, line.job, line.attempt, line.cause, line.at, now)


def create_for_waiting(now: datetime) -> None:
    """Create the notifications of jobs that have waited for longer than their targets allow."""
    targets = _active()
    members = _members(targets)
    for target in targets:
        if "waiting" in target.events:
            _save(list(_waits(target, members, now)))


def _waits(target: NotificationTarget, members: Members, now: datetime) -> Iterable[Notification]:
    long_ago = now - timedelta(hours=target.wait_hours)
    own = Q(project=target.project_id) if target.project_id else Q(owner=target.user_id)
    waiting = Job.objects.filter(own, state=JobState.QUEUED, queued_at__lte=long_ago).select_related(
        "project"
    )
    known = set(Notification.objects.filter(target=target, event="waiting").values_list("key", flat=True))
    for job in waiting.order_by("queued_at")[:MAX_WAITING]:
        key = f"waiting:{job.pk}:{job.attempt}:{target.wait_hours:g}"
        if key not in known and _about(target, job, members):
            cause = said(
                "It has waited for {hours} hours. {reason}", hours=f"{target.wait_hours:g}", reason=job.reason
            )
            yield _notification(target, key, "waiting", job, job.attempt, cause, now, now)


def _notification(
    target: NotificationTarget,
    key: str,
    event: str,
    job: Job,
    attempt: int,
    cause: str,
    at: datetime,
    now: datetime,
) -> Notification:
    name = " ".join(job.display_name.split())
    url = f"{settings.TRAINYARD.url}/jobs/{job.pk}/" if settings.TRAINYARD.url else ""
    error = job.error_message if event == "failed" else ""
    data = {
        "job": {
            "id": str(job.pk),
            "name": job.display_name,
            "project": job.project.name,
            "owner": job.owner_name,
            "state": job.state,
            "attempt": attempt,
            "url": url,
        },
        "event": event,
        "cause": cause,
        "error": {"code": job.error_code, "message": error} if error else None,
        "time": at.isoformat(),
    }
    text = join("\n", dict.fromkeys(part for part in (cause, error) if part))
    return Notification(
        target=target,
        key=key[:120],
        event=event,
        job=job,
        attempt=attempt,
        text={
            "title": said("Job “{name}”: {what}", name=name, what=EVENTS[event]),
            "text": text,
            "url": url,
            "data": data,
        },
        made_at=now,
        due_at=now,
    )


def create_for_person(
    user: User, key: str, title: str, text: str, url: str, now: datetime, only: str = ""
) -> None:
    """Create a notification about a person's account, for each address that the person has confirmed.

    `only`: for addresses of this way, such as e-mail.
    """
    content = {"title": title, "text": text, "url": url, "data": {"event": ACCOUNT, "time": now.isoformat()}}
    targets = NotificationTarget.objects.filter(user=user, confirmed_at__isnull=False)
    if only:
        targets = targets.filter(way=only)
    _save(
        [
            Notification(target=target, key=key, event=ACCOUNT, text=content, made_at=now, due_at=now)
            for target in targets
        ]
    )


def create_for_log_storage(project: Project, level: int, text: str, now: datetime) -> None:
    title = said(
        "Project {project}: its logs have reached {percent} % of their limit",
        project=project.name,
        percent=level,
    )
    _create_for_storage(project, LOG_STORAGE, level, title, text, now)


def create_for_file_storage(project: Project, level: int, text: str, now: datetime) -> None:
    title = said(
        "Project {project}: its files have reached {percent} % of their limit",
        project=project.name,
        percent=level,
    )
    _create_for_storage(project, FILE_STORAGE, level, title, text, now)


def _create_for_storage(
    project: Project, event: str, level: int, title: str, text: str, now: datetime
) -> None:
    """Create the notifications that what a project stores has reached a level of its limit: for the addresses of the
    project, and for those of its admins."""
    admins = Membership.objects.filter(project=project, role=Role.ADMIN).values("user")
    url = f"{settings.TRAINYARD.url}/projects/{project.name}/" if settings.TRAINYARD.url else ""
    at = now.isoformat()
    data = {"event": event, "project": project.name, "percent": level, "cause": text, "time": at}
    content = {"title": title, "text": text, "url": url, "data": data}
    key = f"{event}:{project.pk}:{level}:{at}"
    targets = NotificationTarget.objects.filter(Q(project=project) | Q(user__in=admins, user__is_active=True))
    _save(
        [
            Notification(target=target, key=key, event=event, text=content, made_at=now, due_at=now)
            for target in targets.filter(confirmed_at__isnull=False)
            if event in target.events
        ]
    )


def create_for_study(
    study: TuningJob, title: str, text: str, result: Mapping[str, object], now: datetime
) -> None:
    """Create the notifications that a study has ended: for its owner, and for the addresses of its project."""
    url = f"{settings.TRAINYARD.url}/studies/{study.pk}/" if settings.TRAINYARD.url else ""
    about = {
        "id": str(study.pk),
        "name": study.display_name,
        "project": study.project.name,
        "owner": study.owner_name,
        "state": study.state,
        "url": url,
        **result,
    }
    content = {"title": title, "text": text, "url": url}
    content |= {"data": {"event": STUDY, "study": about, "time": now.isoformat()}}  # type: ignore[dict-item]
    targets = _active()
    members = _members(targets)
    _save(
        [
            Notification(
                target=target,
                # A study may end again after it was extended.
                key=f"{STUDY}:{study.pk}:{now.isoformat()}",
                event=STUDY,
                text=content,
                made_at=now,
                due_at=now,
            )
            for target in targets
            if STUDY in target.events and _about(target, study, members)
        ]
    )


def create_test(target: NotificationTarget, actor: str, now: datetime) -> None:
    """Create a test notification, unless one is still being sent."""
    if target.confirmed_at is None:
        raise Refused(
            "address", said("The owner of {address} has not confirmed the address yet.", address=target.shown)
        )
    if Notification.objects.filter(target=target, event=TEST, due_at__isnull=False).exists():
        return
    text = {
        "title": said("Trainyard: a test"),
        "text": said("{person} asked for it. Notifications of jobs will come here.", person=actor),
        "url": settings.TRAINYARD.url,
        "data": {"event": TEST, "actor": actor, "time": now.isoformat()},
    }
    _save(
        [
            Notification(
                target=target, key=f"test:{now.isoformat()}", event=TEST, text=text, made_at=now, due_at=now
            )
        ]
    )
    NotificationTarget.objects.filter(pk=target.pk).update(paused_until=None)


def _save(made: Sequence[Notification]) -> None:
    if made:
        Notification.objects.bulk_create(made, ignore_conflicts=True)
