"""Hosts that misbehaved: closed for longer each time, by any dispatcher, until the time is over or an admin ends it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import enrolment, misbehaviour
from agents.hosts.checklist import NEEDED
from agents.models import Host, HostEvent, HostStatus, Location
from agents.ssh.dial import HostMisbehaves

pytestmark = pytest.mark.django_db


@pytest.fixture
def host():
    return Host.objects.create(
        name="gpu-1",
        location=Location.objects.get_or_create(name="default")[0],
        address="192.0.2.1",
        user="train",
        pinned_key="ssh-ed25519 AAAA",
        created_at=timezone.now(),
        status=HostStatus.UP,
        status_since=timezone.now(),
        checklist=[{"name": name, "ok": True, "text": "", "fix": ""} for name in sorted(NEEDED)],
    )


def test_a_host_is_closed_for_longer_each_time_up_to_an_hour_and_is_forgiven_after_a_day(host):
    now, waits = timezone.now(), []
    for _ in range(9):
        misbehaviour.close(host, "it floods", now)
        host.refresh_from_db()
        waits.append(host.closed_until - now)
        assert host.due_at == host.closed_until and misbehaviour.is_closed(host, now)
        now = host.closed_until + timedelta(minutes=5)
        assert not misbehaviour.is_closed(host, now)
    assert [wait.total_seconds() / 60 for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    misbehaviour.close(host, "it floods", now + timedelta(days=2))
    host.refresh_from_db()
    assert host.closed_times == 1


def test_the_history_says_why_until_when_and_how_often(host):
    now = timezone.now()
    assert misbehaviour.close(host, "it floods", now)
    host.refresh_from_db()
    assert host.status == HostStatus.MISBEHAVING
    [line] = HostEvent.objects.filter(host=host)
    until = f"{host.closed_until:%Y-%m-%d %H:%M:%S}"
    assert line.kind == "misbehaving" and line.text == host.last_error
    assert line.text.startswith("it floods. Its connection was closed, until " + until)
    misbehaviour.close(host, "it floods", now)
    host.refresh_from_db()
    assert host.last_error.endswith("It was closed 2 times in a row.")


def test_an_admin_may_have_it_dialled_at_once(host):
    now = timezone.now()
    misbehaviour.close(host, "it floods", now)
    misbehaviour.reopen(host.pk, now)
    host.refresh_from_db()
    assert not misbehaviour.is_closed(host, now) and host.closed_times == 1


def test_a_check_that_ends_after_the_host_was_closed_does_not_put_it_back_into_service(host, monkeypatch):
    class Dialled:
        def close(self):
            pass

    def probe(asked, transport, now):
        misbehaviour.close(asked, "it floods", now)
        return []

    monkeypatch.setattr(enrolment, "dial", lambda target, key: Dialled())
    monkeypatch.setattr(enrolment.keys, "private_key", lambda: None)
    monkeypatch.setattr(enrolment, "fingerprint", lambda line: "SHA256:x")
    monkeypatch.setattr(enrolment, "_probe", probe)
    enrolment.check_host(host.pk, timezone.now())
    host.refresh_from_db()
    assert host.status == HostStatus.MISBEHAVING


def test_a_check_that_finds_a_hostile_ssh_server_closes_the_host(host, monkeypatch):
    def hostile(target, key):
        raise HostMisbehaves("a packet of 4294967295 bytes")

    monkeypatch.setattr(enrolment, "dial", hostile)
    monkeypatch.setattr(enrolment.keys, "private_key", lambda: None)
    [item] = enrolment.check_host(host.pk, timezone.now())
    host.refresh_from_db()
    assert host.status == HostStatus.MISBEHAVING and "a packet of" in host.last_error
    assert item.ok is False and item.fix
