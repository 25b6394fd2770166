"""The limit on lines of a host's history in a minute."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from agents.hosts import host_history
from agents.hosts.host_history import MAX_A_MINUTE, TRAINYARD
from agents.models import Host, HostEvent, Location


def test_unlimited_lines_are_always_written_and_do_not_use_up_the_limit_of_others(db):
    now = timezone.now()
    host = Host.objects.create(
        name="gpu-01",
        location=Location.objects.get_or_create(name="default")[0],
        address="127.0.0.1",
        user="ada",
        created_at=now,
        status_since=now,
    )
    for _ in range(2 * MAX_A_MINUTE):
        host_history.record(host.pk, "relied_on", "", TRAINYARD, now, limited=False)
    for _ in range(2 * MAX_A_MINUTE):
        host_history.record(host.pk, "gpu_free", "", TRAINYARD, now)
    kinds = list(HostEvent.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["relied_on"] * 2 * MAX_A_MINUTE + ["gpu_free"] * (MAX_A_MINUTE - 1) + ["more"]
    host_history.record(host.pk, "gpu_free", "the next minute", TRAINYARD, now + timedelta(minutes=1))
    assert HostEvent.objects.latest("id").text == "the next minute"
