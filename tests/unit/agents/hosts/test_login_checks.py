"""Whether a further login of a machine is separated from the other logins there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.utils import timezone

from agents.hosts import checklist, login_checks
from agents.hosts.checklist import SEPARATION
from agents.models import Gpu, Host, Location
from tests.unit.agents.hosts.test_enrolment import facts


def row(user, machine=None, **known):
    now = timezone.now()
    location = Location.objects.get_or_create(name="default")[0]
    return Host.objects.create(
        name="h1",
        location=location,
        address="h1.example",
        user=user,
        machine=machine,
        created_at=now,
        added_by="root",
        status_since=now,
        facts=known,
    )


@pytest.fixture
def login(db):
    machine = row("gpu", uid=1000, home="/home/gpu")
    row("train-b", machine, uid=1002, home="/home/train-b")
    return row("train-a", machine)


def own(**changes):
    known = {
        "user": "train-a",
        "uid": 1001,
        "home": "/home/train-a",
        "home_mode": 0o700,
        "groups": ("train-a",),
    }
    return replace(facts(), **{**known, **changes})


def line(login, name=SEPARATION, **changes):
    [found] = [item for item in login_checks.check(login, own(**changes), 0.0) if item.name == name]
    return found


def test_a_login_of_its_own_is_separated_and_the_line_says_what_is_shared(login):
    found = line(login)
    assert found.ok is True
    assert "user id 1001, /home/train-a" in found.text and "Shared with all logins" in found.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uid": 0}, "It is root"),
        ({"uid": 1000}, "the same user id, 1000, as gpu"),
        ({"uid": 1002}, "the same user id, 1002, as train-b"),
        ({"home": "/home/train-b"}, "the same home directory, /home/train-b, as train-b"),
        ({"groups": ("train-a", "docker")}, "in the group docker"),
    ],
)
def test_a_login_that_is_not_separated_is_not_used(login, changes, words):
    found = line(login, **changes)
    assert found.ok is False and words in found.text and found.fix
    rows = [{"name": name, "ok": True} for name in checklist.NEEDED] + [found.as_row()]
    assert not checklist.is_usable(rows)


@pytest.mark.parametrize(
    ("changes", "cure"),
    [
        ({"home_mode": 0o755}, "chmod 700 ~"),
        ({"groups": ("train-a", "sudo")}, "in the group sudo"),
        ({"uid": None}, "Check the host again"),
    ],
)
def test_what_weakens_the_separation_is_told_and_refuses_nothing(login, changes, cure):
    found = line(login, **changes)
    assert found.ok is None and cure in found.fix


def test_a_login_that_does_not_see_the_gpus_of_the_machine_is_not_used(login):
    Gpu.objects.create(
        host=login.machine, uuid="GPU-9", index=9, model="x", memory_mb=1, accelerator_type="NVIDIA_L4"
    )
    found = line(login, name="GPUs", gpus=())
    assert found.ok is False and "does not see 1 of the machine's 1 GPUs" in found.text
