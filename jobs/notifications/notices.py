"""Telling people: history's lines become notices, one for each target that asked, tried until taken or given up.

Lines of history are the outbox: they are written with what they tell, whatever happens to the process after that.
Here they are read by their ids, each for longer than any transaction lasts, so that one which was begun early and
committed late is not passed over; a notice that exists already is not made again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from agents.infra import untrusted
from agents.infra.refusals import Refused
from jobs.models import Job, Membership, Notice, NoticeTarget, Tick, Transition
from jobs.rules.lifecycle import history_kinds
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.notifications import EVENTS, FLAGS, KINDS, PROOF, TEST, delay_s, event_of
from jobs.wake import hints

log = logging.getLogger(__name__)

# A line is looked at for so long after its id was first passed: no transaction of ours lasts a tenth of it.
SEEN_FOR = timedelta(seconds=60)
# Nobody takes a notice back that a process died with; it is tried again after this.
AHEAD = timedelta(minutes=2)
KEPT = timedelta(days=30)
MAX_AT_ONCE = 500
MAX_OF_ONE = 10
# Of one target: whoever has more jobs that wait knows by then.
MAX_WAITING = 500
LOW, HIGH = "notices-low", "notices-high"

# (person, project)
Members = frozenset[tuple[int, int]]


def gather_notices(now: datetime) -> None:
    """Make the notices of what happened since."""
    low = _cursor(now)
    targets = _active()
    if not targets:
        return
    told, members = _lines(low, targets), _members(targets)
    made = [notice for line in told for notice in _for_targets(line, targets, members, now)]
    _save(made)


def _active() -> list[NoticeTarget]:
    rows = NoticeTarget.objects.filter(Q(user=None) | Q(user__is_active=True), proved_at__isnull=False)
    return list(rows.select_related("user"))


def _members(targets: Sequence[NoticeTarget]) -> Members:
    """Who of those who are told is in which project."""
    people = {target.user_id for target in targets if target.user_id}
    return frozenset(Membership.objects.filter(user__in=people).values_list("user", "project"))


def _about(target: NoticeTarget, job: Job, members: Members) -> bool:
    """A project is told of all its jobs; a person of his own, where he may still see them."""
    if target.user is None:
        return target.project_id == job.project_id
    may_see = target.user.is_superuser or (target.user.pk, job.project_id) in members
    return target.user.pk == job.owner_id and may_see


def _cursor(now: datetime) -> int:
    """Lines up to this id were looked at for long enough. The first time ever, what is past is past."""
    newest = Transition.objects.aggregate(Max("pk"))["pk__max"] or 0
    low, _ = Tick.objects.get_or_create(name=LOW, defaults={"at": now, "serial": newest})
    high, _ = Tick.objects.get_or_create(name=HIGH, defaults={"at": now, "serial": newest})
    if now - high.at >= SEEN_FOR:
        Tick.objects.filter(pk=low.pk, serial__lt=high.serial).update(serial=high.serial, at=now)
        Tick.objects.filter(pk=high.pk, at=high.at).update(serial=newest, at=now)
        return high.serial
    return low.serial


def _lines(low: int, targets: Sequence[NoticeTarget]) -> QuerySet[Transition]:
    """Those that somebody may be told of, of jobs that somebody asked about."""
    ends = Q(subject=history_kinds.JOB, to_state__in=TERMINAL)
    flags = Q(subject=history_kinds.FLAGGED, to_state__in=FLAGS)
    people = {target.user_id for target in targets if target.user_id}
    projects = {target.project_id for target in targets if target.project_id}
    rows = Transition.objects.filter(ends | flags | Q(kind__in=KINDS), pk__gt=low)
    rows = rows.filter(Q(job__owner__in=people) | Q(job__project__in=projects))
    return rows.select_related("job", "job__project").order_by("pk")


def _for_targets(
    line: Transition, targets: Iterable[NoticeTarget], members: Members, now: datetime
) -> Iterable[Notice]:
    event = event_of(line.kind, line.subject, line.to_state)
    for target in targets:
        asked = event in target.events and target.proved_at is not None and line.at >= target.proved_at
        if asked and _about(target, line.job, members):
            # All replicas that one decision restarts are one telling.
            key = f"{event}:{line.job_id}:{line.at.isoformat()}"
            yield _notice(target, key, event, line.job, line.attempt, line.cause, line.at, now)


def gather_waits(now: datetime) -> None:
    """Jobs that have waited for longer than a target wants to know."""
    targets = _active()
    members = _members(targets)
    for target in targets:
        if "waiting" in target.events:
            _save(list(_waits(target, members, now)))


def _waits(target: NoticeTarget, members: Members, now: datetime) -> Iterable[Notice]:
    long_ago = now - timedelta(hours=target.wait_hours)
    own = Q(project=target.project_id) if target.project_id else Q(owner=target.user_id)
    waiting = Job.objects.filter(own, state=JobState.QUEUED, queued_at__lte=long_ago).select_related(
        "project"
    )
    known = set(Notice.objects.filter(target=target, event="waiting").values_list("key", flat=True))
    for job in waiting.order_by("queued_at")[:MAX_WAITING]:
        key = f"waiting:{job.pk}:{job.attempt}:{target.wait_hours:g}"
        if key not in known and _about(target, job, members):
            cause = f"It has waited for {target.wait_hours:g} hours. {job.reason}"
            yield _notice(target, key, "waiting", job, job.attempt, cause, now, now)


def _notice(
    target: NoticeTarget,
    key: str,
    event: str,
    job: Job,
    attempt: int,
    cause: str,
    at: datetime,
    now: datetime,
) -> Notice:
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
    text = "\n".join(dict.fromkeys(part for part in (cause, error) if part))
    return Notice(
        target=target,
        key=key[:120],
        event=event,
        job=job,
        attempt=attempt,
        text={"title": f"Job “{name}”: {EVENTS[event]}", "text": text, "url": url, "data": data},
        made_at=now,
        due_at=now,
    )


def test(target: NoticeTarget, actor: str, now: datetime) -> None:
    """Something to try an address with. Not another one while one is on its way."""
    if target.proved_at is None:
        raise Refused("address", f"Nobody has said yet that {target.shown} wants to be told.")
    if Notice.objects.filter(target=target, event=TEST, due_at__isnull=False).exists():
        return
    told = {
        "title": "Trainyard: a test",
        "text": f"{actor} asked for it. Notices of jobs will come here.",
        "url": settings.TRAINYARD.url,
        "data": {"event": TEST, "actor": actor, "time": now.isoformat()},
    }
    _save(
        [Notice(target=target, key=f"test:{now.isoformat()}", event=TEST, text=told, made_at=now, due_at=now)]
    )
    NoticeTarget.objects.filter(pk=target.pk).update(rest_until=None)


def _save(made: Sequence[Notice]) -> None:
    if made:
        Notice.objects.bulk_create(made, ignore_conflicts=True)


def send_due(now: datetime) -> None:
    """Have a worker send what is due. The sweep itself waits for nobody."""
    hints.notices(due(now))


def due(now: datetime) -> list[int]:
    """The oldest of each target come first: however many one has, it keeps nobody else's away."""
    rows = Notice.objects.filter(due_at__lte=now).exclude(target__rest_until__gt=now)
    place = Window(RowNumber(), partition_by="target", order_by=["due_at", "pk"])
    rows = rows.annotate(place=place).filter(place__lte=MAX_OF_ONE).order_by("place", "due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:MAX_AT_ONCE])


def owners(ids: Sequence[int]) -> dict[int, str]:
    """Whose these are: a person's or a project's."""
    rows = Notice.objects.filter(pk__in=ids).values_list("pk", "target__user", "target__project").order_by()
    return {pk: f"user {user}" if user else f"project {project}" for pk, user, project in rows}


def take(notice_id: int, now: datetime) -> Notice | None:
    """This one is ours to send. It is pushed ahead first: a process that dies with it loses nothing."""
    rested = Q(target__rest_until=None) | Q(target__rest_until__lte=now)
    free = Notice.objects.filter(rested, pk=notice_id, due_at__lte=now).values("pk")
    if not Notice.objects.filter(pk__in=free, due_at__lte=now).update(
        due_at=now + AHEAD, tries=F("tries") + 1
    ):
        return None
    return Notice.objects.select_related("target", "job").get(pk=notice_id)


def record_result(notice: Notice, taken: bool, words: str, final: bool, now: datetime) -> None:
    """What became of it. Its job's history says when somebody was told, or could not be."""
    wait = None if taken or final else delay_s(notice.tries)
    changes: dict[str, object] = {"answer": untrusted.text(words, 2000), "due_at": None}
    if taken:
        changes["sent_at"] = now
    elif wait is None or notice.event in (TEST, PROOF):
        changes["given_up_at"] = now
    else:
        changes["due_at"] = now + timedelta(seconds=wait)
    with transaction.atomic():
        if not Notice.objects.filter(pk=notice.pk, tries=notice.tries, due_at__isnull=False).update(
            **changes
        ):
            return  # somebody else had it after us
        rest = changes["due_at"] if not taken else None
        NoticeTarget.objects.filter(pk=notice.target_id).update(rest_until=rest)
        if notice.job is not None and changes["due_at"] is None:
            Transition.objects.create(**_history(notice, taken, now))


def _history(notice: Notice, taken: bool, now: datetime) -> dict[str, object]:
    target = notice.target
    who = notice.job and (notice.job.owner_name if target.user_id else f"project {notice.job.project.name}")
    way = target.get_way_display().lower()
    told = f"{who} was told by {way}" if taken else f"{who} could not be told by {way}"
    return {
        "job": notice.job,
        "at": now,
        "kind": history_kinds.HistoryKind.NOTICE,
        "subject": history_kinds.TOLD,
        "to_state": "told" if taken else "not told",
        "attempt": notice.attempt,
        "cause": f"{told}: {EVENTS.get(notice.event, notice.event)}.",
        "actor": "trainyard",
    }


def forget_old(now: datetime) -> None:
    Notice.objects.filter(due_at=None, made_at__lt=now - KEPT).delete()
