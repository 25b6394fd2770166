"""A host leaves for good when no run holds anything there and its logs are here, or are recorded as lost."""

from __future__ import annotations

import zlib

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host, HostStatus
from jobs import services
from jobs.logs import reader
from jobs.maintenance.remove_host import remove_host
from jobs.models import MetricsProof, RecordingPiece, RecordingState, Run, ShellSession
from jobs.recordings import store
from tests.unit.jobs.fake_hosts import settle

BEGINNING = b'{"version": 2}\n'


def ended_with_a_recording(submit, control_plane, host):
    """A run that is over, its log fetched, and of the recording of its shell the beginning is here."""
    job = submit()
    settle(control_plane, host)
    run = job.runs.get()
    now = timezone.now()
    session = ShellSession.objects.create(
        run=run,
        opened_at=now,
        closed_at=now,
        recording="a" * 32,
        recording_state=RecordingState.COMING,
        recording_stored=len(BEGINNING),
    )
    piece = zlib.compress(BEGINNING)
    RecordingPiece.objects.create(session=session, start=0, end=len(BEGINNING), data=piece)
    host.end(control_plane, run.pk, exit_code=0)
    settle(control_plane, host)
    assert Run.objects.get().log_complete_at
    return session


def is_cut(session):
    """Whether what is here of the recording is kept, and it says that its end is missing."""
    store.keep_complete(timezone.now())
    session.refresh_from_db()
    return session.recording_state == RecordingState.CUT and b"".join(store.stream(session)) == BEGINNING


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


def test_a_host_with_a_recording_that_is_not_here_is_not_removed_while_it_answers(
    add_host, submit, control_plane
):
    host = add_host()
    session = ended_with_a_recording(submit, control_plane, host)
    with pytest.raises(Refused, match="recordings of shells"):
        remove_host(host.row, "alice", timezone.now())
    assert session.run.host.retired_at is None
    Host.objects.update(status=HostStatus.UNREACHABLE)
    remove_host(host.row, "alice", timezone.now())
    assert is_cut(session)


def test_a_host_with_metrics_that_are_not_here_is_not_removed_while_it_answers(
    add_host, submit, control_plane
):
    host = add_host()
    submit()
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    settle(control_plane, host)
    Run.objects.update(metrics_proof="")
    with pytest.raises(Refused, match="metrics"):
        remove_host(host.row, "alice", timezone.now())
    assert Host.objects.get().retired_at is None
    Host.objects.update(status=HostStatus.UNREACHABLE)
    remove_host(host.row, "alice", timezone.now())
    assert Host.every.get().retired_at and Run.objects.get().metrics_proof == MetricsProof.CUT


def test_what_a_deleted_job_reported_keeps_no_host(add_host, submit, control_plane, alice):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    settle(control_plane, host)
    Run.objects.update(metrics_proof="")
    job.refresh_from_db()
    services.delete(job, "alice", timezone.now())
    remove_host(host.row, "alice", timezone.now())
    assert Host.every.get().retired_at


@pytest.mark.parametrize("boot, lost", [("boot-1", False), ("boot-2", True)])
def test_a_host_that_holds_nothing_of_a_run_after_a_new_boot_has_no_recording_of_it(
    add_host, submit, control_plane, boot, lost
):
    host = add_host()
    session = ended_with_a_recording(submit, control_plane, host)
    Host.objects.update(boot_id=boot)
    host.runs.clear()
    host.reconcile(control_plane)
    assert is_cut(session) == lost
    if lost:
        remove_host(host.row, "alice", timezone.now())
