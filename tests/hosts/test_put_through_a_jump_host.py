"""A large file for a host behind a jump host: the process that puts it goes the same way as every other connection."""

from __future__ import annotations

import hashlib
import os

import pytest
from django.utils import timezone

from agents.hosts import adding, enrolment
from agents.models import Host
from agents.ssh import keys, put_apart
from agents.ssh.put import Blob, Rate
from agents.ssh.targets import Target

pytestmark = [pytest.mark.django_db, pytest.mark.needs_namespaces]

DATA = os.urandom(9 << 20)
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def far(fleet):
    """A host that is reached by way of another."""
    gate, inner = fleet[0], fleet[1]
    line = keys.public_line()
    for machine in (gate, inner):
        machine.authorize(line)
    way = f"{gate.user}@{gate.address}"
    added = adding.add_host("far", inner.address, inner.port, inner.user, "", way, "ada", timezone.now())
    for machine in (gate, inner):
        enrolment.fetch_host_key(added.pk, timezone.now())
        enrolment.accept_host_key(added.pk, machine.fingerprint(), "ada", timezone.now())
    yield Host.objects.get(pk=added.pk)
    for machine in (gate, inner):
        machine.revoke(line)


def test_a_large_file_arrives_whole_through_a_jump_host(fleet, far):
    gate, inner = fleet[0], fleet[1]
    assert len(DATA) > put_apart.SMALL_BYTES, "a smaller one is put without the process"
    before, told = len(inner.read("/var/log/sshd.log")), []
    blob, target = Blob(SHA, len(DATA)), Target.of(far)
    put_apart.put(
        target, keys.private_text(), "t-jump", blob, lambda start: iter([DATA[start:]]), Rate(0), told.append
    )
    place = f"{inner.home}/.trainyard/t-jump/cache/blobs/{SHA}"
    assert hashlib.sha256(inner.path(place).read_bytes()).hexdigest() == SHA
    assert told[-1] == len(DATA)
    logins = [line for line in inner.read("/var/log/sshd.log")[before:].splitlines() if "Accepted" in line]
    assert logins and all(f"from {gate.address} " in line for line in logins), logins
