"""Enrolment of a host with a real sshd: added, its key accepted, checked; and every way in which that can fail."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import adding, checklist, enrolment
from agents.infra.refusals import Refused
from agents.models import Gpu, Host, HostStatus
from agents.ssh import keys
from agents.ssh.dial import DialError

pytestmark = pytest.mark.django_db


@pytest.fixture
def added(host):
    line = keys.public_line()
    host.authorize(line)
    yield adding.add_host(host.name, host.address, host.port, host.user, "", "", "ada", timezone.now())
    host.revoke(line)


def in_service(added):
    shown = enrolment.fetch_host_key(added.pk, timezone.now())
    enrolment.accept_host_key(added.pk, shown, "ada", timezone.now())
    return {item.name: item for item in enrolment.check_host(added.pk, timezone.now())}


def logins(host):
    return host.read("/var/log/sshd.log").count("Accepted publickey")


@pytest.mark.needs_namespaces
def test_nothing_is_sent_before_a_person_accepts_the_key(host, added):
    before = logins(host)
    shown = enrolment.fetch_host_key(added.pk, timezone.now())
    assert shown == host.fingerprint()
    with pytest.raises(Refused):
        enrolment.accept_host_key(added.pk, "SHA256:other", "ada", timezone.now())
    items = enrolment.check_host(added.pk, timezone.now())
    assert [(i.name, i.ok) for i in items] == [("Reachable", True), ("Host key", False)]
    added.refresh_from_db()
    assert (added.status, added.pinned_key, logins(host)) == (HostStatus.NEW, "", before)


def test_an_accepted_host_is_checked_and_up(host, added):
    items = in_service(added)
    added.refresh_from_db()
    assert added.status == HostStatus.UP, items
    assert added.key_accepted_by == "ada" and added.cpus > 0 and added.memory_mb > 0
    assert sorted(Gpu.objects.filter(host=added).values_list("uuid", flat=True)) == sorted(host.gpu_uuids())
    assert [e.kind for e in added.events.all()][::-1] == ["added", "key_offered", "key_accepted", "up"]


@pytest.mark.needs_namespaces
def test_a_changed_key_stops_everything_and_shows_both(host, added):
    in_service(added)
    old, before = host.fingerprint(), logins(host)
    host.new_host_key()
    items = enrolment.check_host(added.pk, timezone.now())
    added.refresh_from_db()
    assert added.status == HostStatus.BLOCKED and logins(host) == before
    assert old in added.last_error and host.fingerprint() in added.last_error
    assert items[-1].name == "Host key" and items[-1].ok is False
    enrolment.accept_host_key(added.pk, host.fingerprint(), "bob", timezone.now())
    enrolment.check_host(added.pk, timezone.now())
    added.refresh_from_db()
    assert (added.status, added.key_accepted_by) == (HostStatus.UP, "bob")


def test_a_refused_login_shows_the_line_that_is_missing(host, added):
    shown = enrolment.fetch_host_key(added.pk, timezone.now())
    enrolment.accept_host_key(added.pk, shown, "ada", timezone.now())
    host.revoke(keys.public_line())
    items = enrolment.check_host(added.pk, timezone.now())
    added.refresh_from_db()
    assert added.status == HostStatus.AUTH_FAILED and added.last_error
    assert items[-1].name == "Login" and keys.public_line() in items[-1].fix


def test_an_unreachable_host_is_reported_with_the_exact_error(db):
    nowhere = adding.add_host("nowhere", "127.0.0.1", 1, "gpu", "", "", "ada", timezone.now())
    with pytest.raises(DialError):
        enrolment.fetch_host_key(nowhere.pk, timezone.now())
    nowhere.refresh_from_db()
    assert "refused" in nowhere.last_error and nowhere.checklist[0]["ok"] is False


@pytest.mark.parametrize(("seen_s_ago", "status"), [(3, HostStatus.UP), (120, HostStatus.UNREACHABLE)])
def test_a_failed_check_does_not_make_a_host_with_a_live_link_unreachable(db, seen_s_ago, status):
    """A host that is too busy for a second login is not unreachable, and neither are jobs on it."""
    busy = adding.add_host("busy", "127.0.0.1", 1, "gpu", "", "", "ada", timezone.now())
    good = [{"name": name, "ok": True, "text": "", "fix": ""} for name in checklist.NEEDED]
    now = timezone.now()
    seen_at = now - timedelta(seconds=seen_s_ago)
    Host.objects.filter(pk=busy.pk).update(status=HostStatus.UP, seen_at=seen_at, checklist=good, due_at=None)
    items = enrolment.check_host(busy.pk, now)
    busy.refresh_from_db()
    assert items[0].ok is False and busy.status == status
    assert checklist.is_usable(busy.checklist) is (status == HostStatus.UP)
    assert busy.due_at == now + timedelta(minutes=1)


@pytest.mark.needs_namespaces
def test_the_keys_of_a_jump_host_and_its_inner_host_are_accepted_one_by_one(fleet, added):
    gate, inner = fleet[0], fleet[1]
    inner.authorize(keys.public_line())
    far = adding.add_host(
        "far",
        inner.address,
        inner.port,
        inner.user,
        "lab",
        f"{gate.user}@{gate.address}",
        "ada",
        timezone.now(),
    )
    for machine in (gate, inner):
        assert enrolment.fetch_host_key(far.pk, timezone.now()) == machine.fingerprint()
        enrolment.accept_host_key(far.pk, machine.fingerprint(), "ada", timezone.now())
    enrolment.check_host(far.pk, timezone.now())
    far.refresh_from_db()
    assert (far.status, far.location.name, list(far.jump_keys)) == ("up", "lab", [f"{gate.address}:22"])
    inner.revoke(keys.public_line())


def test_gpus_that_another_host_reports_are_not_taken_over(host, added):
    uuid = host.gpu_uuids()[0]
    other = adding.add_host("other", "10.9.9.9", 22, "gpu", "", "", "ada", timezone.now())
    Gpu.objects.create(host=other, uuid=uuid, index=0, model="x", memory_mb=1, accelerator_type="X")
    items = in_service(added)
    assert Gpu.objects.get(uuid=uuid).host == other
    assert items["GPUs"].ok is False and "other" in items["GPUs"].text
    assert Host.objects.get(pk=added.pk).status == HostStatus.UNUSABLE


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": ""}),
        ("name", {"name": "taken"}),
        ("address", {"address": "-oProxyCommand=touch x"}),
        ("port", {"port": 0}),
        ("user", {"user": "a;b"}),
        ("location", {"location": "Lab A"}),
        ("jump", {"jump": "a@b:99999"}),
    ],
)
def test_invalid_input_names_the_field(db, field, changes):
    good = {"name": "a", "address": "h", "port": 22, "user": "u", "location": "", "jump": "", "actor": "ada"}
    adding.add_host(**{**good, "name": "taken"}, now=timezone.now())
    with pytest.raises(Refused) as refused:
        adding.add_host(**{**good, **changes}, now=timezone.now())
    assert refused.value.field == field
    assert Host.objects.count() == 1


@pytest.mark.needs_namespaces
def test_a_host_that_shows_its_accepted_key_again_is_up_and_offers_none(host, added):
    in_service(added)
    kept = {file: file.read_bytes() for file in (host.dir / "host_key", host.dir / "host_key.pub")}
    host.new_host_key()
    enrolment.check_host(added.pk, timezone.now())
    added.refresh_from_db()
    assert (added.status, bool(added.offered_key)) == (HostStatus.BLOCKED, True)
    for file, content in kept.items():
        file.write_bytes(content)
    host.install_host_key()
    host.restart_sshd()
    enrolment.check_host(added.pk, timezone.now())
    added.refresh_from_db()
    assert (added.status, added.offered_key) == (HostStatus.UP, "")
