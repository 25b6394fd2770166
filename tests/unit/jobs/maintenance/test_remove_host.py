"""A host leaves for good when no run holds anything there and its logs are here, or are recorded as lost."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host, HostStatus
from jobs.logs import reader
from jobs.maintenance.remove_host import remove_host
from jobs.models import Run
from tests.unit.jobs.fake_hosts import settle


def test_a_host_is_removed_when_nothing_holds_it(add_host, submit, control_plane):
    host = add_host()
    submit()
    with pytest.raises(Refused, match="1 run holds it"):
        remove_host(host.row, "alice", timezone.now())
    settle(control_plane, host)
    host.runs[Run.objects.get().pk].log += b"the last words"
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    with pytest.raises(Refused, match="log bytes"):
        remove_host(host.row, "alice", timezone.now())
    settle(control_plane, host)
    remove_host(host.row, "alice", timezone.now())
    remove_host(host.row, "bob", timezone.now())
    assert reader.status(Run.objects.get()).matches is not False and not Run.objects.get().gaps.exists()
    row = Host.every.get()
    assert row.retired_at and [event.actor for event in row.events.all()] == ["alice"]


def test_an_unreachable_host_that_is_removed_leaves_a_gap_and_not_a_log_without_an_end(
    add_host, submit, control_plane
):
    host = add_host()
    submit()
    settle(control_plane, host)
    run = Run.objects.get()
    host.runs[run.pk].log += b"the last words"
    host.end(control_plane, run.pk, exit_code=0)
    Host.objects.update(status=HostStatus.UNREACHABLE)
    remove_host(host.row, "alice", timezone.now())
    status = reader.status(run)
    (gap,) = status.gaps
    assert status.complete and (gap.start, gap.end) == (run.log_stored, run.log_stored + 14)
    assert "h1 was removed" in gap.reason
