"""The log store against a model: whatever comes in any order, stored bytes are the host's, or a gap is recorded."""

from __future__ import annotations

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents.infra import clock
from agents.links.control_plane import Arrival, Fact, Frame, Gap, LogEnd
from jobs.logs import reader, segments, storage, verify
from jobs.models import LogGap, LogPiece, LogSegment, Run
from tests.harness.examples import examples_here
from tests.unit.jobs.fake_hosts import InlineControlPlane, digest_of, frame

pytestmark = pytest.mark.django_db
places = st.floats(0, 1)


class LogStore(RuleBasedStateMachine):
    """The model is a bytes object that says for each of its bytes whether the host lost it."""

    make_run = None  # set by the test below

    @initialize()
    def begin(self):
        self.host, self.run = type(self).make_run()
        self.file, self.lost = b"", set()
        self.stored, self.torn = 0, False
        self.control_planes = [InlineControlPlane(), InlineControlPlane()]

    def take(self, *whats):
        """Store by one of two dispatchers in turn, so that what each remembers of the log may be old."""
        self.control_planes.reverse()
        return self.control_planes[0].store_reports(
            self.host.row.pk, 7, [Arrival(self.run.pk, what) for what in whats]
        )

    def stores_to(self, end):
        """Compare and set, on the model."""
        self.stored = max(self.stored, end)

    @rule(data=st.binary(min_size=1, max_size=30), times=st.integers(1, 20))
    def the_replica_prints(self, data, times):
        self.file += data * times

    @precondition(lambda self: self.stored < len(self.file))
    @rule(size=st.integers(1, 400), z=st.booleans(), back=st.integers(0, 50))
    def the_next_frame_comes(self, size, z, back):
        start = max(0, self.stored - back)
        told = self.take(frame(start, self.file[start : self.stored + size], z))
        self.stores_to(min(len(self.file), self.stored + size))
        assert told.acks == {self.run.pk: self.stored} and not told.pulls

    @precondition(lambda self: self.file)
    @rule(ends=st.tuples(places, places), z=st.booleans())
    def any_frame_comes(self, ends, z):
        start, end = sorted(round(place * len(self.file)) for place in ends)
        told = self.take(frame(start, self.file[start:end], z))
        hole = start > self.stored and end > start
        if not hole and end > start:
            self.stores_to(end)
        assert told.pulls == ({self.run.pk: self.stored} if hole else {})

    @precondition(lambda self: self.stored < len(self.file))
    @rule(size=st.integers(1, 300), ahead=st.integers(-30, 5))
    def the_host_lost_a_range(self, size, ahead):
        start = max(0, self.stored + ahead)
        end = min(len(self.file), start + size)
        told = self.take(Gap(start, end, "punched"))
        if end <= start:
            return
        if start > self.stored:
            assert told.pulls == {self.run.pk: self.stored}
        elif end > self.stored:
            self.lost |= set(range(self.stored, end))
            self.stores_to(end)

    @rule(junk=st.binary(max_size=30), z=st.booleans())
    def a_broken_frame_comes(self, junk, z):
        """An unreadable frame is pulled again; after three times its range becomes a gap."""
        broken = Frame(self.stored, self.stored + 31, z, junk)
        self.control_planes = [InlineControlPlane(), InlineControlPlane()]
        for _ in range(2):
            assert self.take(broken).pulls == {self.run.pk: self.stored}

    @rule()
    def rolled(self):
        segments.roll(self.run.pk)

    @rule()
    def rolling_dies_between_file_and_row(self):
        real = segments._point_to
        segments._point_to = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
        try:
            segments.roll(self.run.pk)
        except KeyboardInterrupt:
            pass
        finally:
            segments._point_to = real

    @rule()
    def joined(self):
        segments.compact(self.run.pk)

    @rule(place=places, limit=st.integers(1, 300))
    def somebody_reads(self, place, limit):
        start = round(place * (len(self.file) + 3))
        chunk = reader.read(self.run, start, limit)
        assert chunk.end - chunk.start == len(chunk.data) <= limit
        assert chunk.data == self.file[chunk.start : chunk.end]
        assert set(range(start, min(chunk.start, self.stored))) <= self.lost
        if start < self.stored:
            assert chunk.data or chunk.gaps
        assert all(chunk.start <= offset < chunk.end for offset, _ in chunk.at)

    @invariant()
    def stored_bytes_are_the_hosts(self):
        if not hasattr(self, "run"):
            return
        assert reader.size(self.run) == self.stored
        expected = bytes(self.file[i] for i in range(self.stored) if i not in self.lost)
        assert b"".join(reader.stream(self.run, 0, self.stored)) == expected

    @invariant()
    def every_offset_is_covered_once(self):
        if not hasattr(self, "run"):
            return
        spans = list(LogPiece.objects.filter(run=self.run).values_list("start", "end"))
        spans += [(e[0], e[1]) for s in LogSegment.objects.filter(run=self.run) for e in s.index]
        spans += list(LogGap.objects.filter(run=self.run).values_list("start", "end"))
        position = 0
        for start, end in sorted(spans):
            assert start == position < end
            position = end
        assert position == self.stored

    def teardown(self):
        if not hasattr(self, "run"):
            return
        digest = digest_of(self.file)
        document = {"phase": "closed", "log": {"size": len(self.file), "final": True, "digest": digest}}
        rest = [frame(self.stored, self.file[self.stored :])] if self.stored < len(self.file) else []
        self.take(Fact(document), *rest, LogEnd(len(self.file), digest))
        while segments.to_roll():
            segments.roll(self.run.pk)
        verify.verify_logs([self.run.pk], timezone.now())
        status = reader.status(self.run)
        assert Run.objects.get(pk=self.run.pk).prove_due_at is None
        assert status.complete and status.matches is (None if self.lost else True), status
        assert sum(gap.end - gap.start for gap in status.gaps) == len(self.lost)
        began = clock.elapsed()
        segments.sweep_orphans(began)
        # A second more: a sum of such numbers is rounded.
        segments.sweep_orphans(began + segments.ORPHAN_AFTER_S + 1)
        assert set(storage.files()) == set(LogSegment.objects.values_list("key", flat=True))


@pytest.mark.parametrize("small", [60], indirect=True)
def test_the_store_holds_what_the_host_printed(add_host, submit, control_plane, small):
    host = add_host(cpus=9999)

    def make_run():
        job = submit()
        return host, Run.objects.get(job=job)

    machine = type("Machine", (LogStore,), {"make_run": staticmethod(make_run)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            # Each step is many statements: shrinking a failure would take longer than the time limit of the suite.
            phases=[Phase.generate],
            max_examples=examples_here(25),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
