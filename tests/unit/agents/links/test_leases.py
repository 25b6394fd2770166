"""Leases: which dispatcher may speak to which host, shared out over the dispatchers that are alive."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import recovery, seals
from agents.hosts.seals import SealOwner
from agents.links import host_status, leases
from agents.links.fleet import Fleet, FleetSettings
from agents.links.leases import renew_and_take
from agents.links.link import Hello
from agents.models import Dispatcher, Host, HostEvent, HostStatus, Location, Recovery
from agents.ssh.targets import Target
from tests.unit.agents.conftest import row

pytestmark = pytest.mark.django_db

NOW = timezone.now()
LEASE_S = 15.0


class Linked:
    """A host thread whose link is up, as a fleet sees it."""

    up = True

    def __init__(self, target):
        self.target, self.pokes = target, 0

    def poke(self, watch=False):
        self.pokes += 1


class Machine:
    """As much of one as a row shows."""

    address, port, user, host_key_line = "192.0.2.1", 22, "gpu", "ssh-ed25519 AAAA"

    def __init__(self, number):
        self.name = f"host-{number}"


def hosts(count):
    return [row(Machine(number)).pk for number in range(count)]


def share(name, held=None, at=0.0, fresh=False):
    now = NOW + timedelta(seconds=at)
    leases.announce(name, now)
    return renew_and_take(name, held or {}, now, LEASE_S, fresh)


def test_hosts_are_taken_kept_and_renewed_under_one_token():
    ids = hosts(3)
    held = dict(share("a").held)
    assert sorted(held) == ids and all(token > 0 for token in held.values())
    assert share("a", held, at=10).held == held
    assert share("b", at=11).held == {}
    assert Host.objects.filter(lease_until__gt=NOW + timedelta(seconds=24)).count() == 3


def test_an_expired_lease_passes_on_with_a_greater_token_and_the_old_holder_learns_it():
    hosts(1)
    first = dict(share("a").held)
    second = dict(share("b", at=LEASE_S + 1).held)
    assert second.keys() == first.keys()
    assert all(second[pk] > first[pk] for pk in first)
    assert share("a", first, at=LEASE_S + 2).held == {}
    assert Host.objects.get().lease_owner == "b"


def test_a_new_dispatcher_gets_its_share_when_others_release_it():
    hosts(5)
    held = dict(share("a").held)
    assert share("b", at=1).held == {}
    shares = share("a", held, at=2)
    assert len(shares.give_up) == 2
    leases.release("a", shares.give_up, NOW)
    assert sorted(share("b", at=3).held) == sorted(shares.give_up)
    kept = {pk: token for pk, token in held.items() if pk not in shares.give_up}
    assert share("a", kept, at=4) == leases.LeaseChanges(kept, frozenset())


def test_a_restarted_process_takes_over_its_hosts_at_once_and_its_earlier_life_does_not_get_them_back():
    hosts(1)
    former = dict(share("a").held)
    anew = dict(share("a", at=1, fresh=True).held)
    assert [anew[pk] > former[pk] for pk in former] == [True]
    assert share("a", former, at=2).held == {}, "the former life, should it wake up"


def test_one_of_two_dispatchers_that_take_a_host_at_the_same_time_gets_it(monkeypatch):
    (host,) = hosts(1)
    real = leases._free

    def slow(row, *arguments):
        Host.objects.filter(pk=host).update(lease_owner="b", lease_token=99)
        return real(row, *arguments)

    monkeypatch.setattr(leases, "_free", slow)
    assert share("a").held == {}


def test_hosts_without_an_accepted_key_or_out_of_service_are_not_leased():
    location = Location.objects.get_or_create(name="default")[0]
    for number, changes in enumerate(({"pinned_key": ""}, {"retired_at": NOW})):
        row(Machine(number), location=location, **changes)
    assert share("a").held == {}


def test_a_dispatcher_that_leaves_frees_its_hosts_and_dead_ones_are_forgotten():
    hosts(2)
    share("a")
    leases.withdraw("a", NOW)
    assert len(share("b", at=0.1).held) == 2
    assert share("c", at=7200).held.keys() == set(hosts(0)) | {host.pk for host in Host.objects.all()}
    assert [found.name for found in Dispatcher.objects.all()] == ["c"]


# What a link may write about its host

HELLO = Hello(boot_id="boot-2", sha="s", wall_offset_s=1.5, free_mb=700)


@pytest.mark.parametrize(
    ("before", "usable", "after"),
    [
        (HostStatus.UNREACHABLE, True, HostStatus.UP),
        (HostStatus.BLOCKED, True, HostStatus.UP),
        (HostStatus.UNUSABLE, True, HostStatus.UP),
        (HostStatus.UP, True, HostStatus.UP),
        (HostStatus.CHECKING, True, HostStatus.CHECKING),
        (HostStatus.UNREACHABLE, False, HostStatus.CHECKING),
        (HostStatus.UNUSABLE, False, HostStatus.UNUSABLE),
        (HostStatus.CHECKING, False, HostStatus.CHECKING),
    ],
)
def test_a_host_that_connects_is_up_if_its_checklist_is_good_and_checked_if_not(before, usable, after):
    host = row(Machine(0), status=before, lease_token=4, **({} if usable else {"checklist": []}))
    assert host_status.record_greeting(host.pk, 4, HELLO, NOW) == (before != after)
    host.refresh_from_db()
    assert (host.status, host.boot_id, host.free_disk_mb) == (after, "boot-2", 700)
    assert (host.due_at == NOW) == (after == HostStatus.CHECKING != before)


def test_a_reboot_is_reported_and_recorded():
    host = row(Machine(0), boot_id="boot-1", lease_token=4)
    assert host_status.record_greeting(host.pk, 4, HELLO, NOW)
    assert [event.kind for event in HostEvent.objects.all()] == ["rebooted"]
    assert not host_status.record_greeting(host.pk, 4, HELLO, NOW)


def test_a_host_that_connects_has_shown_its_accepted_key():
    host = row(Machine(0), lease_token=4, offered_key="ssh-ed25519 BBBB")
    assert host_status.record_greeting(host.pk, 4, HELLO, NOW)
    host.refresh_from_db()
    assert host.offered_key == "" and [event.kind for event in host.events.all()] == ["key_back"]
    assert not host_status.record_greeting(host.pk, 4, HELLO, NOW)


def test_a_stale_token_writes_nothing_about_a_host():
    host = row(Machine(0), lease_token=5)
    assert not host_status.record_failure(host.pk, 4, HostStatus.UNREACHABLE, "gone", NOW)
    assert not host_status.record_greeting(host.pk, 4, HELLO, NOW)
    host.refresh_from_db()
    assert (host.status, host.boot_id, host.last_error) == (HostStatus.UP, "", "")


def hello(mark=0, seal=""):
    return Hello(boot_id="b", sha="s", wall_offset_s=0.0, free_mb=1, mark=mark, seal=seal)


def sealed(pk, mark, **other):
    return hello(mark, seals.seal_of_mark(replace(SealOwner.of(Host.objects.get(pk=pk)), **other), mark))


def test_a_host_with_a_later_mark_than_the_database_shows_a_restored_backup():
    [pk] = hosts(1)
    token = share("one", fresh=True).held[pk]
    host_status.record_greeting(pk, token, sealed(pk, 10**9), NOW)
    assert not recovery.in_recovery_mode(), "the first greeting of a row proves nothing"
    sent = leases.record_answers("one", [pk], NOW)[pk]
    later = leases.record_answers("one", [pk], NOW - timedelta(hours=1))[pk]
    assert sent >= int(NOW.timestamp()) and later == sent + 1, "it grows, whatever the clock does"
    host_status.record_greeting(pk, token, sealed(pk, later), NOW)
    assert not recovery.in_recovery_mode()
    Host.objects.filter(pk=pk).update(mark=later - 3600)  # the backup was an hour old
    host_status.record_greeting(pk, token, sealed(pk, later), NOW)
    assert recovery.in_recovery_mode() and "knows of nothing there after" in Recovery.objects.get().why
    assert Host.objects.get(pk=pk).mark == later, "from now on it gives out higher ones"


@pytest.mark.parametrize(
    "forge",
    [
        lambda pk, mark: hello(mark),
        lambda pk, mark: hello(mark, seals.seal_of_mark(SealOwner.of(Host.objects.get(pk=pk)), mark - 1)),
        lambda pk, mark: sealed(pk, mark, host_id=pk + 1),
        lambda pk, mark: sealed(pk, mark, key="ssh-ed25519 BBBB"),
        lambda pk, mark: sealed(pk, mark, user="other"),
        lambda pk, mark: hello(mark, seals.seal_of_run(SealOwner.of(Host.objects.get(pk=pk)), str(mark))),
        lambda pk, mark: hello(1 << 40),
    ],
    ids=[
        "no seal",
        "an old seal",
        "another row",
        "another machine",
        "another login",
        "another kind",
        "absurd",
    ],
)
def test_a_mark_without_its_seal_stops_nothing_and_is_recorded_once_a_day(forge):
    [pk] = hosts(1)
    token = share("one", fresh=True).held[pk]
    sent = leases.record_answers("one", [pk], NOW)[pk]
    for hours in (0, 1, 25):
        host_status.record_greeting(pk, token, forge(pk, sent + 7200), NOW + timedelta(hours=hours))
    assert not recovery.in_recovery_mode()
    assert Host.objects.get(pk=pk).mark == sent, "what it says is not what we go on from"
    assert HostEvent.objects.filter(host=pk, kind="forged_mark").count() == 2


def test_a_mark_from_before_there_were_seals_is_not_recorded():
    [pk] = hosts(1)
    token = share("one", fresh=True).held[pk]
    sent = leases.record_answers("one", [pk], NOW)[pk]
    host_status.record_greeting(pk, token, hello(sent), NOW)
    # Sent to the host, and not yet written there.
    host_status.record_greeting(pk, token, hello(sent + 20), NOW)
    assert (
        not recovery.in_recovery_mode() and not HostEvent.objects.filter(host=pk, kind="forged_mark").exists()
    )


def test_marks_are_sent_to_hosts_that_this_dispatcher_holds():
    [pk] = hosts(1)
    share("one", fresh=True)
    assert leases.record_answers("two", [pk], NOW) == {} and leases.record_answers("one", [], NOW) == {}


def test_a_poke_of_a_host_that_was_edited_does_not_wait_for_the_next_renewal():
    """Until then orders would go to the machine that it was. A poke for any other reason renews nothing."""
    host = Host.objects.get(pk=hosts(1)[0])
    fleet = Fleet(None, "one", FleetSettings("d", worker_threads=0), lambda: None)
    fleet._hosts[host.pk] = linked = Linked(Target.of(host))
    assert fleet.poke([host.pk]) == set() and linked.pokes == 1
    assert not fleet._has_moved()
    Host.objects.update(address="192.0.2.9")
    assert not fleet._has_moved(), "nobody has said so"
    fleet.poke([host.pk])
    assert fleet._has_moved() and not fleet._has_moved()


def test_pokes_begin_a_renewal_only_where_one_is_needed(monkeypatch):
    fleet = Fleet(None, "one", FleetSettings("d", lease_s=60.0, worker_threads=0), lambda: None)
    fleet._hosts[1] = Linked(None)
    moved = [True, False]
    monkeypatch.setattr(fleet, "_has_moved", moved.pop)
    waiting = threading.Thread(target=fleet._wait_to_renew, daemon=True)
    waiting.start()
    fleet.poke([1])
    waiting.join(1.0)
    assert waiting.is_alive() and moved == [True]
    fleet.poke([1])
    waiting.join(5.0)
    assert not waiting.is_alive() and moved == []
    again = threading.Thread(target=fleet._wait_to_renew, daemon=True)
    again.start()
    assert fleet.poke([2]) == {2}
    again.join(5.0)
    assert not again.is_alive()
