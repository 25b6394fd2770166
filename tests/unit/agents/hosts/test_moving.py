"""A new way to a host is tried on a real sshd before it counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.hosts import moving
from agents.hosts.moving import Way
from agents.infra.refusals import Refused
from agents.models import Gpu, Host
from agents.ssh import keys
from agents.ssh.host_keys import fingerprint
from tests.unit.agents.conftest import row

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def our_key(monkeypatch, key):
    monkeypatch.setattr(keys, "private_key", lambda: key)


@pytest.fixture
def host(machine):
    return row(machine)


@pytest.fixture
def beside(machines):
    """The other machine, as a jump host or as what answers at a wrong address."""
    return machines[1]


def refused(host, way, keys=()):
    with pytest.raises(Refused) as why:
        moving.try_way(host, way, keys)
    assert "Nothing was changed" in why.value.message
    return why.value


def test_a_way_to_the_accepted_key_is_good(host):
    assert not moving.try_way(host, Way.of(host), ()).same  # nothing is known of its boot yet
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    Host.objects.update(boot_id=boot)
    host.refresh_from_db()
    assert moving.try_way(host, Way.of(host), ()).same


def test_a_machine_is_known_by_a_gpu_after_a_reboot(host):
    Host.objects.update(boot_id="before")
    host.refresh_from_db()
    assert not moving.try_way(host, Way.of(host), ()).same
    way = Way.of(host)
    facts = []
    real = moving._probe
    moving._probe = lambda transport: facts.append(real(transport)) or facts[0]
    try:
        moving.try_way(host, way, ())
    finally:
        moving._probe = real
    Gpu.objects.create(host=host, uuid=facts[0].gpus[0].uuid, index=0, model="x", memory_mb=1)
    assert moving.try_way(host, way, ()).same


def test_another_machine_behind_the_address_is_refused(host, beside):
    why = refused(host, Way(beside.address, beside.port, host.user, ""))
    shown, ours = fingerprint(beside.host_key_line), fingerprint(host.pinned_key)
    assert why.field == "address"
    assert shown in why.message and ours in why.message and "another machine" in why.message


def test_a_place_where_nothing_answers_is_refused(host):
    why = refused(host, replace(Way.of(host), port=1))
    assert why.field == "address" and "does not answer" in why.message


def test_a_login_without_our_key_is_refused_with_the_line_to_add(host, monkeypatch):
    import paramiko

    monkeypatch.setattr(keys, "private_key", paramiko.ECDSAKey.generate)
    monkeypatch.setattr(keys, "public_line", lambda: "ssh-ed25519 OURS trainyard")
    why = refused(host, Way.of(host))
    assert why.field == "user" and "ssh-ed25519 OURS" in why.message


def test_the_key_of_a_new_jump_host_is_accepted_by_its_fingerprint_only(host, beside):
    jump = f"{host.user}@{beside.address}:{beside.port}"
    way, shown = replace(Way.of(host), jump=jump), fingerprint(beside.host_key_line)
    why = refused(host, way, ["SHA256:other"])
    assert why.field == "jump_key" and shown in why.message
    tried = moving.try_way(host, way, [shown])
    assert tried.jump_keys == {f"{beside.address}:{beside.port}": beside.host_key_line}
    host.refresh_from_db()
    assert not host.jump_keys


def test_a_jump_host_with_another_key_than_the_accepted_one_is_refused(host, beside):
    at = f"{beside.address}:{beside.port}"
    host.jump_keys = {at: host.pinned_key}
    why = refused(host, replace(Way.of(host), jump=f"{host.user}@{at}"), [fingerprint(beside.host_key_line)])
    assert why.field == "jump" and "another machine" in why.message
