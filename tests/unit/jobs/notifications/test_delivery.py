"""Which lines of history become notifications, which of these are due, and which sender's result counts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from jobs.lifecycle.advance import advance
from jobs.models import Job, Notification, NotificationTarget
from jobs.notifications import create, delivery, targets
from tests.unit.jobs.conftest import alice, project, spec, submit

__all__ = ["alice", "project", "submit"]
ADDRESS = "https://hook.example/"


@pytest.fixture
def tell(alice):
    def add(name=""):
        create.create_from_history(timezone.now())
        row, _ = targets.add(alice, "hook", ADDRESS + name, ["cancelled"], 4.0, "alice", timezone.now())
        return row

    return add


def cancel(job):
    Job.objects.filter(pk=job.pk).update(cancel_requested_at=timezone.now(), cancel_requested_by="alice")
    advance([job.pk], Clock())


def gathered():
    create.create_from_history(timezone.now())
    return sorted(Notification.objects.values_list("target", flat=True))


@pytest.fixture
def notice(submit, tell):
    """A notification that waits to be sent."""
    job = submit(spec())
    tell()
    cancel(job)
    create.create_from_history(timezone.now())
    return Notification.objects.get()


def test_a_target_gets_the_next_line_after_it_was_added(submit, tell):
    job = submit(spec())
    row = tell()
    cancel(job)
    assert gathered() == [row.pk]


def test_a_new_target_gets_no_earlier_events(submit, tell):
    before = tell("before")
    cancel(submit(spec()))
    tell("after")
    assert gathered() == [before.pk]


def test_a_disabled_user_gets_no_notifications(alice, submit, tell):
    tell()
    alice.is_active = False
    alice.save()
    cancel(submit(spec()))
    assert gathered() == []


def test_a_paused_target_gets_nothing_until_its_pause_ends(notice):
    now = timezone.now()
    NotificationTarget.objects.update(paused_until=now + timedelta(seconds=30))
    assert delivery.due(now) == [] and delivery.claim(notice.pk, now) is None
    later = now + timedelta(seconds=31)
    assert delivery.due(later) == [notice.pk] and delivery.claim(notice.pk, later) is not None


def test_the_result_of_a_sender_that_lost_its_claim_is_ignored(notice):
    """Another sender has claimed it meanwhile, and the result of that sender counts."""
    now = timezone.now()
    slow = delivery.claim(notice.pk, now)
    later = now + delivery.CLAIMED_FOR + timedelta(seconds=1)
    quick = delivery.claim(notice.pk, later)
    delivery.record_result(slow, True, "the slow one", False, later)
    notice.refresh_from_db()
    assert (notice.sent_at, notice.answer) == (None, "")
    delivery.record_result(quick, True, "the quick one", True, later)
    notice.refresh_from_db()
    assert (notice.sent_at, notice.given_up_at, notice.answer) == (later, None, "the quick one")


def test_old_notifications_are_deleted_unless_they_are_still_to_be_sent(notice):
    now = timezone.now() + delivery.KEPT_FOR + timedelta(days=1)
    delivery.delete_old(now)
    assert Notification.objects.filter(pk=notice.pk).exists()
    Notification.objects.update(due_at=None)
    delivery.delete_old(now)
    assert not Notification.objects.exists()
