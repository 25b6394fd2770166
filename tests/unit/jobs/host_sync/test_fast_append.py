"""The fast path for log bytes makes the same rows as intake.py, and respects lease, host, phase and offset."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.links.control_plane import Arrival, Fact, Frame, Gap
from agents.models import Host
from jobs import services
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.logs import reader, segments
from jobs.models import Job, LogPiece, LogSegment, Run
from jobs.wake import announce
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import frame

pytestmark = pytest.mark.django_db
RUNNING = {"phase": "running", "boot_id": "b", "claimed_at": 1e9, "started_at": 1e9}


@pytest.fixture
def two(add_host, submit, control_plane):
    """Two runs on one host whose first bytes are stored, and `tell`, which hands over reports of the host."""
    host = add_host()
    submit(gang(pool_of(), pool_of()))
    first, second = Run.objects.order_by("pk").values_list("pk", flat=True)

    def tell(*arrivals, token=7, host_id=host.row.pk):
        return control_plane.store_reports(host_id, token, [Arrival(run, what) for run, what in arrivals])

    tell(
        (first, Fact(RUNNING)), (second, Fact(RUNNING)), (first, frame(0, b"one ")), (second, frame(0, b"1 "))
    )
    return first, second, tell


@pytest.fixture
def only_the_short_way(monkeypatch):
    monkeypatch.setattr(intake, "take", lambda *args: pytest.fail("the long way was taken"))


def log(run):
    row = Run.objects.get(pk=run)
    assert row.log_stored <= row.log_size
    return b"".join(reader.stream(row, 0, row.log_stored))


def test_the_next_bytes_of_several_logs_are_stored_by_one_statement(two, only_the_short_way):
    first, second, tell = two
    at = ((4, 1000.5), (6, 1001.0))
    taken = tell(
        (first, frame(4, b"two ", at=at)),
        (second, frame(0, b"1 2 ")),  # begins with bytes that are stored already
        (first, frame(8, b"three", z=False, at=())),
    )
    assert taken.acks == {first: 13, second: 4} and taken.current and not taken.pulls
    assert (log(first), log(second)) == (b"one two three", b"1 2 ")
    piece = LogPiece.objects.get(run=first, start=4)
    assert (piece.end, piece.z, piece.at, piece.wall) == (8, True, [list(mark) for mark in at], 1000.5)
    assert LogPiece.objects.get(run=first, start=8).wall is None


def test_bytes_that_another_dispatcher_stored_meanwhile_are_seen(two):
    first, second, tell = two
    other = [Arrival(first, frame(4, b"two "))]
    intake.take(Run.objects.get(pk=first).host_id, 7, other, timezone.now(), UnreadableFrames())
    # The appender remembers that the first log ends at 4. The second log must not be stored twice because of that.
    taken = tell((second, frame(2, b"2 ")), (first, frame(4, b"two three")))
    assert taken.acks == {first: 13, second: 4}
    assert (log(first), log(second)) == (b"one two three", b"1 2 ")


def test_a_lost_lease_writes_nothing(two):
    first, _, tell = two
    Host.objects.update(lease_token=8)
    assert not tell((first, frame(4, b"x"))).current and log(first) == b"one "
    assert tell((first, frame(4, b"x")), token=8).acks == {first: 5}


def test_a_host_speaks_for_its_own_runs_only(two, add_host):
    first, _, tell = two
    stranger = add_host("h2").row.pk
    taken = tell((first, frame(4, b"x")), host_id=stranger)
    assert taken.current and not taken.acks and log(first) == b"one "


def test_anything_but_the_next_bytes_takes_the_slow_path(two):
    first, second, tell = two
    assert tell((first, frame(9, b"ahead"))).pulls == {first: 4}
    assert tell((first, Frame(4, 9, True, b"broken"))).pulls == {first: 4}
    assert tell((first, frame(0, b"one "))).acks == {first: 4}
    assert tell((second, frame(2, b"2 ")), (first, Gap(4, 9, "lost"))).acks == {first: 9, second: 4}
    assert tell((first, frame(9, b"on"))).acks == {first: 11} and log(first) == b"one on"


def test_bytes_of_a_closed_run_take_the_fast_path_except_the_last(two, monkeypatch):
    first, _, tell = two
    tell((first, Fact(RUNNING | {"phase": "closed", "log": {"size": 12, "final": True}})))
    assert Run.objects.get(pk=first).log_complete_at is None
    with monkeypatch.context() as here:
        here.setattr(intake, "take", lambda *args: pytest.fail("the long way was taken"))
        assert tell((first, frame(4, b"two "))).acks == {first: 8}
    assert Run.objects.get(pk=first).log_complete_at is None
    tell((first, frame(8, b"last")))
    assert Run.objects.get(pk=first).log_complete_at is not None and log(first) == b"one two last"


def test_the_fast_path_stores_nothing_of_a_deleted_job(two):
    first, second, tell = two
    closed = Fact(RUNNING | {"phase": "closed", "exit_code": 0, "log": {"size": 99, "final": True}})
    tell((first, closed), (second, closed))
    services.delete(Job.objects.get(), "alice", timezone.now())
    assert not tell((first, frame(4, b"two ")), (second, frame(2, b"2 "))).acks
    assert not LogPiece.objects.exists() and Run.objects.get(pk=first).log_stored == 4


def test_the_first_bytes_are_shown_before_the_facts_beside_them_are_understood(
    add_host, submit, control_plane, monkeypatch
):
    host, job = add_host(), submit()
    (run,) = control_plane.wanted_runs(host.row.pk)
    rung, honest = [], intake.take
    monkeypatch.setattr(announce, "send_now", lambda topics: rung.extend(topics))

    def take(host_id, token, arrivals, *more):
        assert rung == [f"log:{run}"] and log(run) == b"one " and len(arrivals) == 1
        return honest(host_id, token, arrivals, *more)

    monkeypatch.setattr(intake, "take", take)
    batch = [Arrival(run, Fact(RUNNING)), Arrival(run, frame(0, b"one "))]
    assert control_plane.store_reports(host.row.pk, 7, batch).acks == {run: 4}
    job.refresh_from_db()
    assert job.state == "RUNNING" and rung.count(f"log:{run}") == 1


def test_bytes_whose_facts_cannot_be_written_are_stored_once(add_host, submit, control_plane, monkeypatch):
    host, _ = add_host(), submit()
    (run,) = control_plane.wanted_runs(host.row.pk)
    batch = [Arrival(run, Fact(RUNNING)), Arrival(run, frame(0, b"one "))]
    with monkeypatch.context() as broken:
        broken.setattr(intake, "take", lambda *args: 1 / 0)
        control_plane.store_reports(host.row.pk, 7, batch)
    assert (log(run), Run.objects.get(pk=run).phase) == (b"one ", "created")
    control_plane.store_reports(host.row.pk, 7, batch)  # the link sends the batch again
    assert (log(run), Run.objects.get(pk=run).phase) == (b"one ", "running")


def test_stored_bytes_are_not_stored_again_when_the_rest_cannot_be_written(two, monkeypatch):
    first, second, tell = two
    seen = []

    def take(host_id, token, arrivals, *more):
        seen.append(list(arrivals))
        raise ValueError("this cannot be written")

    monkeypatch.setattr(intake, "take", take)
    facts = [Arrival(first, Fact(RUNNING)), Arrival(second, Fact(RUNNING))]
    assert tell((first, frame(4, b"two ")), *[(each.run, each.what) for each in facts]).acks == {first: 8}
    assert seen == [facts, facts[:1], facts[1:]]


def test_appended_bytes_are_rolled_byte_by_byte(two, monkeypatch):
    first, _, tell = two
    monkeypatch.setattr(segments, "size", lambda: 10)
    odd = bytes(range(256))
    at = ((4, 1000.5), (9, 1001.0))
    tell(
        (first, frame(4, b"two ", at=at[:1])),
        (first, frame(8, odd, z=False, at=at[1:])),
        (first, frame(264, b"rest")),
    )
    assert segments.roll(first) is False and LogPiece.objects.get(run=first).start == 264
    (rolled,) = LogSegment.objects.filter(run=first)
    assert (rolled.start, rolled.end) == (0, 264) and log(first) == b"one two " + odd + b"rest"
    assert [tuple(mark) for entry in rolled.index for mark in entry[5]][1:] == list(at)
    assert segments.roll(first) is False and LogSegment.objects.count() == 1
