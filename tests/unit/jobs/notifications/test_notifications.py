"""Notifications from a line of history to the receiver: they are sent, tried again, given up, and visible."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from dataclasses import replace
from datetime import timedelta
from email import message_from_bytes, policy
from ipaddress import ip_network

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from jobs import sweep
from jobs.lifecycle.advance import advance
from jobs.models import Job, Membership, Notification, NotificationTarget, Tick, Transition
from jobs.notifications import create, delivery, email_opt_in, sender, targets
from jobs.rules.notifications import EVENTS
from tests.unit.jobs.conftest import add_host, alice, control_plane, gang, pool_of, project, spec, submit
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.notifications.receivers import Hook, Mail, serving

__all__ = ["add_host", "alice", "control_plane", "project", "submit"]
EVERYTHING = list(EVENTS)


@pytest.fixture
def allowed(settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, notify_private=(ip_network("127.0.0.0/8"),))
    return settings


@pytest.fixture
def hook(allowed):
    with serving(Hook()) as server:
        yield server


@pytest.fixture
def tell(alice):
    """tell("hook", address, ...): Alice, or a project, is notified at this address from now on."""

    def add(way, address, owner=None, events=EVERYTHING, hours=4.0):
        create.create_from_history(timezone.now())
        row, secret = targets.add(owner or alice, way, address, events, hours, "alice", timezone.now())
        row.given_secret = secret
        if row.confirmed_at is None:
            email_opt_in.vouch(row, "root", timezone.now())
        return row

    return add


def deliver(later=0):
    """Do what the sweep and the worker do at one moment."""
    now = timezone.now() + timedelta(seconds=later)
    create.create_from_history(now)
    for pk in delivery.due(now):
        sender.deliver(pk, now)


def test_each_event_of_a_job_is_posted_once_as_signed_json(add_host, control_plane, submit, hook, tell):
    target, host = tell("hook", hook.url()), add_host()
    job = submit(spec("sleep 9"))
    settle(control_plane, host)
    host.end(control_plane, f"{job.pk}-workerpool0-0-a1-r0", exit_signal=9)
    settle(control_plane, host)
    host.end(control_plane, f"{job.pk}-workerpool0-0-a1-r1", exit_code=3)
    for later in (0, 1, 200):
        deliver(later)
    assert [json.loads(body)["type"] for _, _, body in hook.heard] == ["job.restarted", "job.failed"]
    assert json.loads(hook.heard[0][2])["data"]["error"] is None, (
        "it had failed by then, which is another story"
    )
    path, headers, body = hook.heard[1]
    told = json.loads(body)["data"]
    assert told["job"]["id"] == str(job.pk) and told["job"]["state"] == "FAILED" and told["error"]["message"]
    key = base64.b64decode(target.given_secret.removeprefix("whsec_"))
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{signature}" and path.startswith("/hook/")
    lines = Transition.objects.filter(job=job, kind="notice").values_list("cause", flat=True)
    assert list(lines) == [
        "alice was notified by webhook: a replica was restarted.",
        "alice was notified by webhook: it failed.",
    ]


def test_a_target_gets_only_its_events_and_only_of_its_own_jobs(
    project, submit, hook, tell, django_user_model
):
    bob = django_user_model.objects.create_user("bob")
    Membership.objects.create(project=project, user=bob, role="submitter")
    tell("slack", hook.url(path="/alice"), events=["cancelled"])
    tell("slack", hook.url(path="/bob"), owner=bob)
    tell("slack", hook.url(path="/project"), owner=project, events=["cancelled"])
    tell("slack", hook.url(path="/failures"), owner=project, events=["failed"])
    job = submit({**spec(), "displayName": "a <!channel> & b"})
    cancel(job)
    deliver()
    assert sorted(path for path, _, _ in hook.heard) == ["/alice", "/project"]
    text = json.loads(hook.heard[0][2])["text"]
    assert "a &lt;!channel&gt; &amp; b" in text and "it was cancelled" in text


def cancel(job):
    Job.objects.filter(pk=job.pk).update(cancel_requested_at=timezone.now(), cancel_requested_by="alice")
    advance([job.pk], Clock())


def test_a_gang_that_is_restarted_together_is_one_notification(add_host, control_plane, submit, hook, tell):
    tell("hook", hook.url(), events=["restarted"])
    host = add_host(cpus=64)
    document = gang(pool_of("sleep 9"), pool_of("sleep 9", count=3))
    document["jobSpec"]["scheduling"] = {"restartJobOnWorkerRestart": True}
    job = submit(document)
    settle(control_plane, host)
    host.end(control_plane, f"{job.pk}-workerpool1-1-a1-r0", exit_signal=9)
    settle(control_plane, host)
    deliver()
    assert Transition.objects.filter(job=job, kind="restart").count() == 4 and len(hook.heard) == 1


def test_a_failed_notification_is_sent_again_later_and_given_up_at_last(submit, hook, tell):
    target = tell("hook", hook.url())
    hook.answers = [(503, {}, b"not now"), (204, {}, b"")]
    job = submit()
    cancel(job)
    deliver()
    notice = Notification.objects.get()
    assert notice.answer == "503 Service Unavailable\nnot now" and notice.tries == 1 and notice.due_at
    target.refresh_from_db()
    assert target.paused_until == notice.due_at
    other = submit()
    cancel(other)
    deliver(1)  # the target is paused, so the other notification waits too
    assert len(hook.heard) == 1
    deliver(60)
    assert Notification.objects.filter(sent_at=None).count() == 0 and len(hook.heard) == 3
    hook.answers = [(503, {}, b"")]
    cancel(submit())
    later = 100
    for _ in range(12):
        deliver(later)
        later += 30_000
    last = Notification.objects.latest("pk")
    assert last.given_up_at and last.tries == 10 and last.due_at is None
    assert Transition.objects.filter(kind="notice", to_state="not told").count() == 1


@pytest.mark.parametrize(
    ("status", "headers", "final"),
    [
        (302, {"Location": "http://127.0.0.1:9/elsewhere"}, True),
        (404, {}, True),
        (410, {}, True),
        (429, {}, False),
        (500, {}, False),
    ],
)
def test_the_answer_of_a_receiver_decides_about_another_try(submit, hook, tell, status, headers, final):
    tell("hook", hook.url())
    hook.answers = [(status, headers, b"its \x00 words")]
    cancel(submit())
    deliver()
    notice = Notification.objects.get()
    assert (notice.given_up_at is not None) is final and str(status) in notice.answer
    assert "its \ufffd words" in notice.answer and len(hook.heard) == 1


def test_mail_is_sent_by_the_operators_server(submit, allowed, tell):
    with serving(Mail()) as mail:
        allowed.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        allowed.EMAIL_HOST, allowed.EMAIL_PORT = "127.0.0.1", mail.port
        tell("mail", "alice@example.org")
        job = submit()
        # No form or API accepts such a name.
        Job.objects.filter(pk=job.pk).update(display_name="one\nBcc: eve@example.org")
        cancel(job)
        deliver()
        [(to, letter)] = mail.letters
        found = message_from_bytes(letter.removesuffix(b"\r\n.\r\n"), policy=policy.default)
        assert to == ["rcpt TO:<alice@example.org>"] and found["Bcc"] is None
        assert found["Subject"].strip() == "Job “one Bcc: eve@example.org”: it was cancelled"
        assert "Cancelled by alice." in found.get_content()
        mail.recipient_answer = b"550 no such user here"
        cancel(submit())
        deliver()
        assert Notification.objects.latest("pk").answer == "550 no such user here"
        assert Notification.objects.latest("pk").given_up_at


def test_without_a_mail_server_the_result_says_so(submit, tell, settings):
    settings.EMAIL_HOST = ""
    tell("mail", "alice@example.org")
    cancel(submit())
    deliver()
    assert Notification.objects.get().answer == sender.NO_MAIL


def test_a_long_wait_is_notified_once(submit, hook, tell):
    tell("hook", hook.url(), events=["waiting"], hours=2)
    job = submit()
    for hours in (1.9, 2.1, 2.2, 30):
        now = job.queued_at + timedelta(hours=hours)
        create.create_for_waiting(now)
    deliver(40 * 3600)
    [(_, _, body)] = hook.heard
    assert json.loads(body)["data"]["cause"].startswith("It has waited for 2 hours. No host")


def test_a_line_that_was_committed_late_is_not_passed_over(submit, hook, tell):
    """Ids are given before the commit, so lines that were read past are read once more."""
    tell("hook", hook.url())
    job = submit()
    low = Tick.objects.get(name=create.LOW).serial
    late = Transition.objects.latest("pk").pk + 1
    cancel(job)
    line = Transition.objects.get(job=job, to_state="CANCELLED")
    assert line.pk >= late > low
    for later in (0, 30, 59):
        create.create_from_history(timezone.now() + timedelta(seconds=later))
    Notification.objects.all().delete()  # as if the line had not been committed yet
    create.create_from_history(timezone.now() + timedelta(seconds=59.5))
    assert Notification.objects.count() == 1
    for later in (61, 122, 183):
        create.create_from_history(timezone.now() + timedelta(seconds=later))
    Notification.objects.all().delete()
    create.create_from_history(timezone.now() + timedelta(seconds=190))
    assert Notification.objects.count() == 0  # lines are not read again for ever


def test_two_senders_send_a_notification_once(submit, hook, tell):
    tell("hook", hook.url())
    cancel(submit())
    now = timezone.now()
    create.create_from_history(now)
    [pk] = delivery.due(now)
    mine, theirs = delivery.claim(pk, now), delivery.claim(pk, now)
    assert mine is not None and theirs is None
    # The first sender dies while it sends: the notification is sent after a while all the same.
    deliver(delivery.CLAIMED_FOR.total_seconds() + 1)
    assert len(hook.heard) == 1 and Notification.objects.get().sent_at


def test_addresses_and_secrets_are_nowhere_to_be_read(submit, hook, tell, caplog):
    caplog.set_level(logging.DEBUG)
    target = tell("hook", hook.url())
    hook.answers = [(500, {}, b"")]
    cancel(submit())
    deliver()
    rows = json.dumps([*Notification.objects.values(), *NotificationTarget.objects.values()], default=repr)
    for secret in ("T0KEN", target.given_secret):
        assert secret not in rows and secret not in caplog.text and secret not in repr(target.shown)
    assert target.shown.startswith(f"http://127.0.0.1:{hook.port}/…")


def test_the_sweep_creates_and_posts_notifications(submit, hook, tell, monkeypatch):
    tell("hook", hook.url())
    cancel(submit())
    posted = []
    monkeypatch.setattr(delivery.hints, "notifications", posted.append)
    sweep.notify_of_history(Clock(timezone.now()))
    sweep.send_notifications(Clock(timezone.now()))
    assert posted == [[Notification.objects.get().pk]]


def test_a_former_member_gets_no_notifications_of_the_project(alice, project, submit, hook, tell):
    tell("slack", hook.url(), hours=1.0)
    job, waits = submit(spec()), submit(spec())
    Membership.objects.filter(user=alice, project=project).delete()
    cancel(job)
    Job.objects.filter(pk=waits.pk).update(queued_at=timezone.now() - timedelta(hours=2))
    create.create_for_waiting(timezone.now())
    deliver()
    assert hook.heard == [] and not Notification.objects.exists()
    Membership.objects.create(user=alice, project=project, role="viewer")
    create.create_for_waiting(timezone.now())
    deliver()
    assert len(hook.heard) == 2


def test_many_notifications_of_one_target_delay_no_other_target(alice, project, tell):
    many, few = tell("slack", "https://many.example/"), tell("slack", "https://few.example/", owner=project)
    now = timezone.now()
    rows = [(many, n) for n in range(2 * delivery.MAX_AT_ONCE)] + [(few, 0)]
    Notification.objects.bulk_create(
        Notification(target=row, key=str(n), event="test", text={}, made_at=now, due_at=now)
        for row, n in rows
    )
    due = delivery.due(now)
    assert Notification.objects.get(target=few).pk in due and len(due) == delivery.MAX_OF_TARGET + 1


def test_each_owner_has_one_notification_in_delivery_and_owners_take_turns(alice, project, tell):
    rows = [tell("slack", f"https://{n}.example/") for n in range(3)]
    rows.append(tell("slack", "https://ours.example/", owner=project))
    now = timezone.now()
    ids = [
        Notification.objects.create(target=row, key="k", event="test", text={}, made_at=now, due_at=now).pk
        for row in rows
    ]
    sending = sender.NotificationSender()
    sending.started = True  # the test takes the part of the threads
    sending.put(ids)
    sending.put(ids)
    first, second = sending.next(), sending.next()
    assert [first[1], second[1]] == [ids[0], ids[3]] and not sending.ready
    sending.done(*second)
    assert not sending.ready, "her other notifications wait for the one that is being sent"
    sending.done(*first)
    assert [sending.next()[1], sending.ready] == [ids[1], type(sending.ready)()]


def test_a_notification_that_we_cannot_send_is_given_up_too(submit, hook, tell, monkeypatch):
    tell("slack", hook.url(), events=["cancelled"])
    cancel(submit(spec()))
    monkeypatch.setattr(sender, "send", lambda *_: 1 / 0)
    for later in range(0, 20 * 28_800, 28_800):
        deliver(later)
    row = Notification.objects.get()
    assert row.given_up_at and row.answer == sender.BROKEN and row.tries == 10
