"""After a power cut only what was synced is left, and the database's rows: a segment that a row names must be there."""

from __future__ import annotations

from pathlib import Path

from jobs.logs import segments, storage
from jobs.models import LogPiece, LogSegment
from tests.harness.power_cut import Synced
from tests.unit.jobs.fake_hosts import frame


def test_a_segment_is_on_the_disk_whole_before_a_row_names_it(logged, monkeypatch):
    run, give = logged
    root = Path(storage.store().path(""))
    root.mkdir(parents=True, exist_ok=True)
    give(frame(0, b"a" * 700))
    synced = Synced().watch(monkeypatch)
    assert not segments.roll(run.pk)
    (segment,) = LogSegment.objects.filter(run=run)
    path = Path(storage.store().path(segment.key))
    assert not LogPiece.objects.filter(run=run).exists(), "nothing else has these bytes"
    assert synced.left(path, root) == path.read_bytes() != b""
