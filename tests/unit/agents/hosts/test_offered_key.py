"""The key that a host shows and nobody has accepted: it waits for a person only while the host shows it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.utils import timezone

from agents.hosts import enrolment, offered_key
from agents.hosts.adding import add_host
from agents.models import Host, HostEvent, HostStatus
from agents.ssh.dial import AuthFailed, HostKeyChanged, SshdBusy, Unreachable
from agents.ssh.host_keys import fingerprint

OLD, NEW, GATE = "ssh-ed25519 AAAA", "ssh-ed25519 BBBB", "ssh-ed25519 CCCC"
AT = "10.0.0.9:22"

pytestmark = pytest.mark.django_db


@pytest.fixture
def dials(monkeypatch):
    """dials(problem or None): what each dial of a check meets from then on."""
    monkeypatch.setattr(enrolment.keys, "private_key", lambda: None)
    monkeypatch.setattr(enrolment.keys, "public_line", lambda: "ssh-ed25519 ours")
    monkeypatch.setattr(enrolment, "_probe", lambda *_: [])

    def meet(problem):
        def dial(target, key):
            if problem:
                raise problem
            return SimpleNamespace(close=lambda: None)

        monkeypatch.setattr(enrolment, "dial", dial)

    return meet


def host(offered_at=""):
    added = add_host("gpu01", "10.0.0.1", 22, "gpu", "", f"gpu@{AT}", "ada", timezone.now())
    Host.objects.filter(pk=added.pk).update(
        status=HostStatus.BLOCKED,
        pinned_key=OLD,
        jump_keys={AT: GATE},
        offered_key=NEW,
        offered_at=offered_at,
    )
    return Host.objects.get(pk=added.pk)


def kinds(row):
    return [event.kind for event in row.events.order_by("pk")][1:]


@pytest.mark.parametrize("check", [enrolment.fetch_host_key, enrolment.check_host])
@pytest.mark.parametrize("offered_at", ["", AT])
def test_a_host_that_shows_its_accepted_key_again_loses_the_note(dials, check, offered_at):
    row = host(offered_at)
    dials(None)
    check(row.pk, timezone.now())
    row.refresh_from_db()
    assert (row.offered_key, row.offered_at, row.pinned_key) == ("", "", OLD)
    [line] = HostEvent.objects.filter(kind="key_back")
    for said in (fingerprint(GATE if offered_at else OLD), fingerprint(NEW), offered_at or "10.0.0.1"):
        assert said in line.text
    dials(HostKeyChanged(OLD, NEW))
    check(row.pk, timezone.now())
    row.refresh_from_db()
    assert (row.offered_key, row.status) == (NEW, HostStatus.BLOCKED), "a new change is a new note"


@pytest.mark.parametrize("check", [enrolment.fetch_host_key, enrolment.check_host])
@pytest.mark.parametrize(
    ("problem", "offered_at", "left"),
    [
        (AuthFailed("no", ""), "", ""),
        (AuthFailed("no", ""), AT, ""),
        (AuthFailed("no", AT), AT, ""),
        (AuthFailed("no", AT), "", NEW),
        (SshdBusy("full", ""), "", NEW),
    ],
)
def test_only_a_machine_that_has_shown_its_key_loses_the_note(dials, check, problem, offered_at, left):
    """Keys come before logins; of a machine behind the one that refuses the login nothing was seen."""
    row = host(offered_at)
    dials(problem)
    try:
        check(row.pk, timezone.now())
    except SshdBusy:
        assert check is enrolment.fetch_host_key
    row.refresh_from_db()
    assert row.offered_key == left


def test_a_host_that_does_not_answer_keeps_the_note(dials):
    row = host()
    dials(Unreachable("no route"))
    enrolment.check_host(row.pk, timezone.now())
    row.refresh_from_db()
    assert row.offered_key == NEW and "key_back" not in kinds(row)


def test_a_key_accepted_since_the_dial_leaves_the_note_of_a_later_change():
    before = host()
    Host.objects.filter(pk=before.pk).update(pinned_key=NEW, offered_key=GATE)
    assert not offered_key.forget(before, timezone.now())
    assert Host.objects.get(pk=before.pk).offered_key == GATE


def test_a_first_key_waits_until_a_person_accepts_it():
    row = host()
    Host.objects.filter(pk=row.pk).update(pinned_key="")
    row.refresh_from_db()
    assert not offered_key.forget(row, timezone.now())
