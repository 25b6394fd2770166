"""The guards between two processes that write to one host's row, each with the race that it is for.

See tests/unit/jobs/test_forced_races.py.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import paramiko
import pytest
from django.db import transaction
from django.utils import timezone

from agents.hosts import enrolment, gpu_quarantine, host_history, offered_key
from agents.links import host_status, leases
from agents.models import Gpu, Host, HostEvent, HostStatus, Location
from agents.ssh.host_keys import fingerprint
from tests.harness.races import race

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


@pytest.fixture
def host():
    now = timezone.now()
    return Host.objects.create(
        name="h",
        location=Location.objects.get_or_create(name="default")[0],
        address="h.example",
        user="gpu",
        created_at=now,
        status_since=now - timedelta(minutes=1),
        status=HostStatus.UP,
        pinned_key="a key",
    )


def whole(act, *args, **options):
    def acts():
        with transaction.atomic():
            return act(*args, **options)

    return acts


def take(name, held=None):
    return whole(leases.renew_and_take, name, held or {}, timezone.now(), 15.0, False)


def test_of_two_dispatchers_that_take_a_host_one_has_it(host):
    mine, theirs = race(take("a"), take("b"), after="UPDATE agents_host lease_owner")
    assert (list(mine.held), theirs.held) == ([host.pk], {})
    assert Host.objects.get().lease_owner == "a"


def test_a_holder_that_renews_too_late_does_not_get_its_host_back(host):
    token = leases.renew_and_take("a", {}, timezone.now() - timedelta(hours=1), 15.0, False).held[host.pk]
    theirs, mine = race(take("b"), take("a", {host.pk: token}), after="UPDATE agents_host lease_token")
    assert (list(theirs.held), mine.held) == ([host.pk], {})
    assert Host.objects.get().lease_owner == "b"


def test_a_change_of_status_that_two_notice_is_written_once(host):
    change = partial(host_history.set_status, host.pk, HostStatus.UNREACHABLE, "no answer", timezone.now())
    assert race(change, change, before="UPDATE agents_host status") == (True, False)
    assert HostEvent.objects.filter(host=host, kind="unreachable").count() == 1


def test_a_status_stays_as_it_is_while_a_decision_needs_it(host):
    def decide():
        host_history.lock_statuses([host.pk])
        return Host.objects.get(pk=host.pk).status

    change = partial(host_history.set_status, host.pk, HostStatus.UNREACHABLE, "no answer", timezone.now())
    # Before it reads: nothing but the lock keeps the other out. A write of this transaction would do so too.
    assert race(whole(decide), change, before="SELECT agents_host status") == (HostStatus.UP, True)


def test_a_status_of_a_dispatcher_that_lost_its_lease_is_not_written(host):
    """It has read its token, and another takes the host before it writes."""
    held = leases.renew_and_take("a", {}, timezone.now() - timedelta(hours=1), 15.0, False).held
    seen = []

    write = partial(
        host_status.record_failure, host.pk, held[host.pk], HostStatus.AUTH_FAILED, "old news", timezone.now()
    )

    def steal():
        found = leases.renew_and_take("b", {}, timezone.now(), 15.0, False)
        seen.append(Host.objects.get(pk=host.pk).last_error)
        return found.held

    # Not later: the change of status locks the row too, and does not ask for the token again.
    wrote, theirs = race(write, steal, after="SELECT agents_host lease_token")
    assert wrote and host.pk in theirs and seen == ["old news"], "written after another had the host"


def test_a_key_that_is_offered_while_another_is_accepted_stays_offered(host):
    keys = [paramiko.ECDSAKey.generate() for _ in range(2)]
    old, new = (f"{key.get_name()} {key.get_base64()}" for key in keys)
    Host.objects.update(offered_key=old)
    accept = partial(enrolment.accept_host_key, host.pk, fingerprint(old), "root", timezone.now())
    offer = partial(offered_key.store, host, "", new, timezone.now())
    race(accept, offer, before="UPDATE agents_host")
    row = Host.objects.get()
    assert (row.pinned_key, row.offered_key) == (old, new)


def test_what_a_dispatcher_that_lost_its_lease_saw_of_a_gpu_is_not_written(host):
    held = leases.renew_and_take("a", {}, timezone.now() - timedelta(hours=1), 15.0, False).held
    Gpu.objects.create(
        host=host, uuid="GPU-1", index=0, model="L4", memory_mb=1, evict=[[7, 7]], evict_by="root"
    )
    answer = {"gpu": "GPU-1", "words": ["killed"]}
    record = partial(gpu_quarantine.record_eviction, host.pk, held[host.pk], answer, timezone.now())

    def steal():
        leases.renew_and_take("b", {}, timezone.now(), 15.0, False)
        return Gpu.objects.get().evict

    assert race(record, steal, before="UPDATE agents_gpu") == (True, [])
