"""Reports of hosts that are late, repeated, malformed or hostile, or that come from a dispatcher without the lease."""

from __future__ import annotations

import random

import pytest
from django.db import OperationalError
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.infra import untrusted
from agents.links.control_plane import Arrival, Fact, Forgotten, Frame, Gap, LogEnd
from agents.models import Host
from jobs.host_sync import facts, intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.models import GpuClaim, Job, LogGap, LogPiece, Run
from jobs.rules.lifecycle.states import RunPhase
from tests.harness.examples import examples_here
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle

pytestmark = pytest.mark.django_db

CLOSED = {"phase": "closed", "boot_id": "b", "started_at": 1e9, "ended_at": 1e9 + 5, "closed_at": 1e9 + 6}
CLOSED |= {"exit_code": 0, "why": "exit", "seconds": 5.0, "log": {"size": 0, "final": True, "digest": None}}


def take(host, *arrivals, token=7):
    arrivals = [Arrival(run, what) for run, what in arrivals]
    return intake.take(host.row.pk, token, arrivals, timezone.now(), UnreadableFrames())


def columns():
    return Run.objects.values().get()


def test_a_lost_lease_writes_nothing(add_host, submit):
    host = add_host()
    submit()
    run, before = Run.objects.get(), columns()
    Host.objects.update(lease_token=8)
    told = take(host, (run.pk, Fact(CLOSED)), (run.pk, frame(0, b"x")))
    assert (
        not told.accepted.current and not told.jobs and columns() == before and not LogPiece.objects.exists()
    )
    assert take(host, (run.pk, Fact(CLOSED)), token=8).jobs == {run.job_id}


def test_a_host_speaks_for_its_own_runs_only(add_host, submit):
    mine, other = add_host("h1"), add_host("h2")
    submit()
    run, before = Run.objects.get(), columns()
    stranger = other if run.host_id == mine.row.pk else mine
    told = take(stranger, (run.pk, Fact(CLOSED)), (run.pk, frame(0, b"x")), ("9" * 80, Fact(CLOSED)))
    assert told.accepted.current and not told.acks and columns() == before


@pytest.mark.parametrize("seed", range(6))
def test_facts_in_any_order_and_number_end_in_the_same_row(seed, add_host, submit):
    host = add_host()
    submit()
    run = Run.objects.get().pk
    started = {"phase": "running", "boot_id": "b", "claimed_at": 1e9, "started_at": 1e9}
    told = [{"phase": "claimed", "boot_id": "b", "claimed_at": 1e9}, started, CLOSED | {"claimed_at": 1e9}]
    told += [started | {"phase": "ended", "exit_code": 0, "ended_at": 1e9 + 5, "why": "exit", "seconds": 5.0}]
    deck = told * 3
    random.Random(seed).shuffle(deck)
    for document in deck:
        take(host, (run, Fact(document)))
    row = Run.objects.get()
    assert (row.phase, row.exit_code, row.why, row.seconds) == ("closed", 0, "exit", 5.0)
    known = (row.claimed_at, row.started_at, row.ended_at, row.closed_at)
    assert [moment.timestamp() for moment in known] == [1e9, 1e9, 1e9 + 5, 1e9 + 6]


def test_a_recorded_fact_is_never_overwritten(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    run = Run.objects.get().pk
    take(host, (run, Fact(CLOSED | {"exit_code": 9})))
    before = columns()
    lies = {"exit_code": 0, "ended_at": 2e9, "why": "stop", "survivors": [{"pid": 1}], "log": {"size": 99}}
    assert not take(host, (run, Fact(CLOSED | lies)), (run, Fact({"phase": "running"}))).jobs
    assert columns() == before
    job.refresh_from_db()
    # Marked in the transaction of the fact, so that no crash can lose the decision.
    assert job.due_at is not None


def test_an_exit_that_nobody_saw_stays_unknown(add_host, submit):
    host = add_host()
    submit()
    run = Run.objects.get().pk
    take(host, (run, Fact({"phase": "ended", "why": "lost"})))
    take(host, (run, Fact(CLOSED)))
    assert (columns()["exit_code"], columns()["phase"], columns()["why"]) == (None, "closed", "lost")


def test_claims_are_released_when_the_host_has_proved_it_clean_and_not_before(
    add_host, submit, control_plane
):
    host = add_host(gpus=1)
    submit(spec(gpus=1))
    settle(control_plane, host)
    (run,) = host.runs
    host.report(control_plane, [Arrival(run, Fact({"phase": "ended", "exit_code": 0, "why": "exit"}))])
    assert Job.objects.get().state == "RUNNING" and GpuClaim.objects.get().released_at is None
    host.report(control_plane, [Arrival(run, Forgotten())])
    assert Run.objects.get().forgotten_at is None and Run.objects.get().released_at is None
    host.end(control_plane, run, exit_code=0)
    assert Job.objects.get().state == "SUCCEEDED" and GpuClaim.objects.get().released_at is not None


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["closed", "running"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = ["phase", "boot_id", "claimed_at", "started_at", "ended_at", "closed_at", "seconds", "exit_code"]
names += ["exit_signal", "why", "refusal", "message", "oom", "containment", "survivors", "log"]
documents = st.dictionaries(st.sampled_from(names), junk) | st.fixed_dictionaries(
    {"phase": st.sampled_from(list(RunPhase))}, optional=dict.fromkeys(names[1:], junk)
)
offsets = st.integers(-(2**70), 2**70) | st.integers(0, 20)
whats = st.one_of(
    st.builds(Fact, documents),
    st.builds(
        Frame,
        offsets,
        offsets,
        st.booleans(),
        st.binary(max_size=20),
        st.lists(st.tuples(junk, junk), max_size=2),
    ),
    st.builds(Gap, offsets, offsets, st.text()),
    st.builds(LogEnd, offsets, st.text()),
    st.just(Forgotten()),
)


@pytest.fixture
def fake_host(add_host, submit):
    host = add_host()
    for _ in range(2):
        submit()
    return host


@settings(max_examples=examples_here(120), suppress_health_check=list(HealthCheck))
@given(told=st.lists(st.tuples(st.integers(0, 2), whats), max_size=6))
def test_nothing_that_a_host_says_can_raise(told, fake_host):
    runs = [*Run.objects.values_list("pk", flat=True), "\0\ud800 no such run"]
    take(fake_host, *((runs[which], what) for which, what in told))
    for run in Run.objects.all():
        covered = sum(piece.end - piece.start for piece in LogPiece.objects.filter(run=run))
        covered += sum(gap.end - gap.start for gap in LogGap.objects.filter(run=run))
        assert covered == run.log_stored


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, True, "1", None, [1]])
def test_an_impossible_time_is_ignored(value):
    assert untrusted.timestamp(value) is None


def test_one_unwritable_report_does_not_delay_the_others(fake_host, control_plane, monkeypatch):
    first, second = Run.objects.values_list("pk", flat=True)
    honest = facts.fill_facts

    def learn(run, told, now):
        if run.pk == first:
            raise ValueError("a bug of ours")
        return honest(run, told, now)

    monkeypatch.setattr(facts, "fill_facts", learn)
    fake_host.report(
        control_plane,
        [Arrival(first, Fact(CLOSED)), Arrival(second, Fact(CLOSED)), Arrival(first, frame(0, b"x"))],
    )
    assert Run.objects.get(pk=second).phase == "closed" and Run.objects.get(pk=first).log_stored == 1


def test_an_unavailable_database_raises_to_the_link(fake_host, control_plane, monkeypatch):
    def away(*args):
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(intake, "_write", away)
    with pytest.raises(OperationalError):
        fake_host.report(control_plane, [Arrival("x", Fact(CLOSED))])


def test_a_claim_alone_starts_no_decision(add_host, submit, control_plane):
    host, job = add_host(), submit()
    (run,) = control_plane.wanted_runs(host.row.pk)
    due = Job.objects.get(pk=job.pk).due_at
    claimed = {"phase": "claimed", "boot_id": "b", "claimed_at": 1e9, "containment": "cgroup"}
    told = intake.take(host.row.pk, 7, [Arrival(run, Fact(claimed))], timezone.now(), UnreadableFrames())
    assert not told.jobs and Job.objects.get(pk=job.pk).due_at == due
    assert Run.objects.get(pk=run).phase == "claimed"
    told = intake.take(
        host.row.pk,
        7,
        [Arrival(run, Fact(claimed | {"phase": "running"}))],
        timezone.now(),
        UnreadableFrames(),
    )
    assert told.jobs == {job.pk} and Job.objects.get(pk=job.pk).due_at <= timezone.now()
