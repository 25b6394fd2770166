"""On which runs a shell can be open, until when, and its record."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from django.utils import timezone

from jobs import services, shells
from jobs.models import Run, ShellSession
from tests.harness.races import race
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(add_host, submit, control_plane):
    host = add_host()
    document = spec()
    document["jobSpec"]["enableWebAccess"] = True
    submit(document)
    settle(control_plane, host)
    run = Run.objects.get()
    return host, run


def test_a_shell_is_allowed_while_the_run_runs_and_no_longer(running, alice, control_plane):
    host, run = running
    session = shells.record_opened(run, alice, "127.0.0.1", timezone.now())
    assert not shells.why_not(run) and shells.why_close(session, timezone.now()) is None
    services.cancel(run.job, "alice", timezone.now())
    assert "stopped" in shells.why_close(session, timezone.now()) and shells.why_not(run)
    settle(control_plane, host)
    assert "not running" in shells.why_close(session, timezone.now())
    shells.record_closed(session, "The job is over.", timezone.now())
    shells.record_closed(session, "Another reason.", timezone.now())
    session.refresh_from_db()
    assert (
        session.close_reason == shells.why_close(session, timezone.now()) == "The job is over."
        and session.user_name == "alice"
    )


def test_no_shell_without_web_access_or_before_the_run_runs(add_host, submit, control_plane):
    host = add_host()
    submit()
    run = Run.objects.get()
    assert "enableWebAccess" in shells.why_not(run)
    document = spec()
    document["jobSpec"]["enableWebAccess"] = True
    later = Run.objects.get(job=submit(document))
    assert "not running" in shells.why_not(later)
    settle(control_plane, host)
    assert shells.why_not(later) is None


def test_a_reboot_is_named(running, alice):
    _, run = running
    session = shells.record_opened(run, alice, "127.0.0.1", timezone.now())
    Run.objects.filter(pk=run.pk).update(phase="closed", why="reboot")
    assert shells.why_close(session, timezone.now()) == shells.why_not(run)
    assert "The host was rebooted" in shells.why_not(run)


def test_a_new_shell_opens_where_the_replica_runs_now(running):
    _, run = running
    assert shells.newest(run) == run
    Run.objects.filter(pk=run.pk).update(phase="closed")
    run.refresh_from_db()
    assert shells.newest(run) == run, "nothing runs in its place"
    later = Run.objects.get(pk=run.pk)
    later.pk, later.number, later.phase, later.port = f"{run.pk}x", 1, "running", 23999
    later.save(force_insert=True)
    assert shells.newest(run) == later


def test_a_session_whose_web_process_died_ends_at_its_last_sign_of_life(running, alice):
    _, run = running
    begin = timezone.now()
    lives, dies = (shells.record_opened(run, alice, "127.0.0.1", begin) for _ in range(2))
    later = begin + timedelta(seconds=40)
    assert shells.why_close(lives, later) is None
    shells.close_abandoned(later)
    assert not ShellSession.objects.exclude(closed_at=None).exists()
    shells.close_abandoned(begin + timedelta(seconds=60))
    for session in (lives, dies):
        session.refresh_from_db()
    assert lives.closed_at is None and lives.seen_at == later
    assert (dies.closed_at, dies.close_reason) == (begin, "The web process that held it went away.")
    assert "went away" in shells.why_close(dies, later)  # even if the process was only suspended


# -- a web process and the sweep at the same time ----------------------------------------------------------------------

both = pytest.mark.django_db(transaction=True)


@pytest.fixture
def silent(running, alice):
    """A shell whose web process has not renewed its record for a minute."""
    began = timezone.now() - timedelta(minutes=1)
    return shells.record_opened(running[1], alice, "127.0.0.1", began)


def sweeps():
    with transaction.atomic():
        shells.close_abandoned(timezone.now())


def closes(session):
    def acts():
        with transaction.atomic():
            shells.record_closed(session, "It exited.", timezone.now())

    return acts


@both
def test_the_reason_of_a_shell_that_was_given_up_stays(silent):
    assert race(sweeps, closes(silent), after="UPDATE jobs_shellsession") == (None, None)
    assert "went away" in ShellSession.objects.get().close_reason


@both
def test_a_shell_that_ends_while_it_is_given_up_keeps_its_own_reason(silent):
    assert race(closes(silent), sweeps, after="UPDATE jobs_shellsession") == (None, None)
    assert ShellSession.objects.get().close_reason == "It exited."


@both
def test_a_shell_whose_record_is_renewed_at_that_moment_is_not_given_up(silent):
    give_up = partial(shells.close_abandoned, timezone.now())
    renew = partial(shells.why_close, silent, timezone.now())
    assert race(give_up, renew, before="UPDATE jobs_shellsession") == (None, None)
    assert ShellSession.objects.get().closed_at is None


@both
def test_a_shell_whose_record_is_being_renewed_is_not_given_up(silent):
    def renew():
        with transaction.atomic():
            return shells.why_close(silent, timezone.now())

    assert race(renew, sweeps, after="UPDATE jobs_shellsession") == (None, None)
    assert ShellSession.objects.get().closed_at is None
