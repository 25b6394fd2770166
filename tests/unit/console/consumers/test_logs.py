"""The log socket sends every byte once and in order, at the viewer's pace."""

from __future__ import annotations

import os
from datetime import timedelta

from django.utils import timezone

from console.consumers import logs as log_socket
from console.consumers.logs import WINDOW
from console.live import registry, tails
from console.runtime.database_threads import in_database_thread
from jobs.models import LogGap, LogPiece, Run
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.example_rows import a_host, a_job, a_run


def path(job, query=""):
    return f"/ws/jobs/{job.pk}/log/workerpool0-0{query}"


async def grow(run, data):
    await in_database_thread(write, run, data)
    registry.of_this_loop().hint(f"log:{run.pk}")


async def test_a_viewer_gets_the_bytes_from_its_cursor_on_and_then_each_new_byte(visit, job, run):
    await in_database_thread(write, run, b"old news\n")
    viewer = await visit(path(job))
    await viewer.tell(**{"from": 4, "id": 7})
    await viewer.until(lambda v: v.bytes == b"news\n")
    first = viewer.told[0]
    assert (first["run"], first["at"], first["jump"], first["id"]) == (run.pk, 4, True, 7)
    assert (first["size"], first["complete"], first["host"]) == (9, False, "gpu-a")
    await grow(run, "new: é\n".encode()[:-2])
    await grow(run, "new: é\n".encode()[-2:])
    await viewer.until(lambda v: v.bytes == "news\nnew: é\n".encode())
    await viewer.tell(tail=3)
    await viewer.until(lambda v: v.bytes.endswith("é\né\n".encode()))
    assert viewer.told[-1]["at"] == 14
    await in_database_thread(complete, run)
    registry.of_this_loop().hint(f"log:{run.pk}")
    await viewer.until(lambda v: v.told[-1]["complete"])
    assert viewer.told[-1]["matches"] is True and viewer.told[-1]["phase"] == "closed"
    await viewer.leave()


async def test_a_viewer_that_asks_is_told_when_the_bytes_were_printed(visit, job, run):
    def print_at(data, wall):
        write(run, data, wall=wall)

    await in_database_thread(print_at, b"one\n", 1_700_000_000.25)
    plain, timed = await visit(path(job)), await visit(path(job))
    await timed.tell(times=True)
    for viewer in (plain, timed):
        await viewer.tell(**{"from": 0})
        await viewer.until(lambda v: v.bytes == b"one\n")
    await in_database_thread(print_at, b"two\n", 1_700_000_001)
    registry.of_this_loop().hint(f"log:{run.pk}")
    for viewer in (plain, timed):
        await viewer.until(lambda v: v.bytes == b"one\ntwo\n")
    told = [(one["run"], *one["times"]) for one in timed.told if "times" in one]
    assert told == [(run.pk, [0, 1_700_000_000.25]), (run.pk, [4, 1_700_000_001])]
    assert not any("times" in one for one in plain.told)
    await timed.tell(times=False)
    await in_database_thread(print_at, b"three\n", 1_700_000_002)
    registry.of_this_loop().hint(f"log:{run.pk}")
    await timed.until(lambda v: v.bytes.endswith(b"three\n"))
    assert sum("times" in one for one in timed.told) == 2
    for viewer in (plain, timed):
        await viewer.leave()


async def test_a_viewer_that_never_reads_is_sent_one_window(visit, job, run):
    data = os.urandom(3 * WINDOW)
    for at in range(0, len(data), 65536):
        await in_database_thread(write, run, data[at : at + 65536])
    idle, reader = await visit(path(job)), await visit(path(job))
    for viewer in (idle, reader):
        await viewer.tell(**{"from": 0})
    await idle.until(lambda v: len(v.bytes) == WINDOW)
    await idle.tell(ack=0)
    while len(reader.bytes) < len(data):
        await reader.step()
        await reader.tell(ack=len(reader.bytes))
    assert reader.bytes == data
    await grow(run, b"more")
    await idle.until(lambda v: v.told[-1]["size"] == len(data) + 4)
    assert len(idle.bytes) == WINDOW
    # A viewer cannot widen the window by acknowledging bytes that were not sent.
    await idle.tell(ack=1 << 60)
    await idle.until(lambda v: len(v.bytes) == 2 * WINDOW)
    assert await idle.quiet()
    assert data.startswith(idle.bytes)
    for viewer in (idle, reader):
        await viewer.leave()


async def test_a_paused_viewer_gets_headers_and_no_bytes(visit, job, run):
    viewer = await visit(path(job))
    await viewer.tell(tail=100)
    await viewer.tell(pause=True)
    await viewer.until(lambda v: v.told)
    await grow(run, b"unseen\n")
    await viewer.until(lambda v: v.told[-1]["stored"] == 7)
    assert viewer.bytes == b""
    await viewer.tell(pause=False)
    await viewer.until(lambda v: v.bytes == b"unseen\n")
    await viewer.leave()


async def test_a_gap_is_shown_with_its_reason(visit, job, run):
    for act, what in ((write, b"before"), (lose, 100), (lose, 5), (write, b"after")):
        await in_database_thread(act, run, what)
    viewer = await visit(path(job))
    await viewer.tell(**{"from": 0})
    await viewer.until(lambda v: v.bytes == b"beforeafter")
    gaps = [(told["at"], told["to"], told["gap"]) for told in viewer.told if "gap" in told]
    assert gaps == [(6, 106, "the host's log was cut"), (106, 111, "the host's log was cut")]
    await in_database_thread(lose, run, 9)
    await grow(run, b"!")
    await viewer.until(lambda v: v.bytes == b"beforeafter!")
    assert sum("gap" in told for told in viewer.told) == 3
    await viewer.leave()


async def test_a_log_full_of_gaps_costs_no_more_than_one_without(job, run):
    """A host may alternate single bytes and gaps of one byte. Neither a read nor the memory grows with that."""

    def rows():
        spans = range(0, 4000, 2)
        LogPiece.objects.bulk_create(LogPiece(run=run, start=n, end=n + 1, z=False, data=b"x") for n in spans)
        LogGap.objects.bulk_create(LogGap(run=run, start=n + 1, end=n + 2, reason="lost") for n in spans)
        Run.objects.filter(pk=run.pk).update(log_stored=4000, log_size=4000)
        return tails._news(run.pk, 0)

    seen, pieces = await in_database_thread(rows)
    assert seen.stored == 4000 and 0 < len(pieces) <= tails.MAX_READ_BYTES // tails.MIN_COST
    tail = tails.Tail(run.pk, seen)
    for n in range(20_000):
        tail._append(tails.Piece(n, n + 1, b"", "lost"))
    assert len(tail._ring) <= tails.RING_BYTES // tails.MIN_COST + 1 and tail.end == 20_000


async def test_the_log_of_a_restart_follows_the_last_byte_of_the_earlier_run(visit, job, run, monkeypatch):
    monkeypatch.setattr(log_socket, "LAST_BYTES_S", 1e9)
    await in_database_thread(write, run, b"one")
    viewer, fixed = await visit(path(job)), await visit(path(job, f"?run={run.pk}"))
    for each in (viewer, fixed):
        await each.tell(**{"from": 0})
        await each.until(lambda v: v.bytes == b"one")
    again = await in_database_thread(a_run, job, run.replica, run.host, number=1)
    await in_database_thread(write, again, b"two")
    await grow(run, b" and the end")
    await in_database_thread(complete, run)
    registry.of_this_loop().hint(f"log:{run.pk}")
    await viewer.until(lambda v: v.bytes == b"one and the endtwo")
    (boundary,) = [told for told in viewer.told if told.get("restart")]
    assert (boundary["run"], boundary["at"], boundary["number"], boundary["host"]) == (
        again.pk,
        0,
        1,
        "gpu-a",
    )
    await viewer.tell(**{"run": run.pk, "from": 4})
    await viewer.until(lambda v: v.bytes.endswith(b"twoand the endtwo"))
    await fixed.until(lambda v: v.told[-1]["newest_run"] == again.pk)
    await fixed.until(lambda v: v.bytes == b"one and the end" and v.told[-1]["complete"])
    assert await fixed.quiet()
    for each in (viewer, fixed):
        await each.leave()


async def test_missing_last_bytes_do_not_hold_up_the_log_of_the_restart(visit, job, run):
    later = {"created_at": timezone.now() - timedelta(minutes=1)}
    again = await in_database_thread(a_run, job, run.replica, run.host, number=1, **later)
    await in_database_thread(write, again, b"two")
    viewer = await visit(path(job))
    await viewer.tell(**{"run": run.pk, "from": 0})
    await viewer.until(lambda v: v.bytes == b"two")
    await viewer.leave()


async def test_the_held_run_of_a_moving_replica_does_not_replace_the_live_run(visit, job, run):
    held = {"created_at": timezone.now() - timedelta(minutes=1), "phase": "created", "held": True}
    await in_database_thread(a_run, job, run.replica, run.host, number=1, **held)
    viewer = await visit(path(job))
    await viewer.tell(tail=100)
    await viewer.until(lambda v: v.told)
    await viewer.quiet(1.5)  # enough time to switch to another run
    await grow(run, b"saving a checkpoint\n")
    await viewer.until(lambda v: v.bytes == b"saving a checkpoint\n")
    assert {told["run"] for told in viewer.told} == {told["newest_run"] for told in viewer.told} == {run.pk}
    await viewer.leave()


async def test_a_replica_that_waits_says_so_and_then_shows_its_log(visit, cast, project):
    job = await in_database_thread(a_job, project, cast.bob, state="QUEUED")
    viewer = await visit(path(job))
    await viewer.tell(tail=100)
    await viewer.until(lambda v: v.told)
    assert "not been started" in viewer.told[0]["waiting"]
    started = await in_database_thread(lambda: a_run(job, job.replicas.get(), a_host()))
    await grow(started, b"hello")
    await viewer.until(lambda v: v.bytes == b"hello")
    await viewer.leave()


async def test_many_viewers_share_one_read_of_the_log(visit, job, run, monkeypatch):
    looks = []
    news = tails._news
    monkeypatch.setattr(tails, "_news", lambda *args: looks.append(args) or news(*args))
    viewers = [await visit(path(job)) for _ in range(20)]
    for viewer in viewers:
        await viewer.tell(tail=100)
        await viewer.until(lambda v: v.told)
    looks.clear()
    for number in range(5):
        await grow(run, b"line %d\n" % number)
        for viewer in viewers:
            await viewer.until(lambda v, number=number: v.bytes.endswith(b"line %d\n" % number))
    assert all(viewer.bytes == viewers[0].bytes for viewer in viewers)
    # One read for each line and one after it that finds nothing. The rest are the reads once a second.
    assert len(looks) < 40
    (here,) = [known for known in tails._tails.values() if known]
    for viewer in viewers:
        assert set(here) == {run.pk}
        await viewer.leave()
    assert not here


async def test_an_invalid_message_ends_the_socket(visit, job, run):
    for text in (
        "[]",
        "{",
        '{"from": "x"}',
        '{"from": -1}',
        '{"tail": 1e3}',
        '{"at": "now"}',
        '{"at": 1e300}',
        '{"ack": true}',
        '{"from": 1, "run": 7}',
        '{"x": "' + "y" * 5000 + '"}',
        "[" * 4000,
    ):
        viewer = await visit(path(job))
        await viewer.say(text)
        code, _ = await viewer.until_closed()
        assert code == 4400, text
    viewer = await visit(path(job))
    await viewer.type(b"\x00")
    assert (await viewer.until_closed())[0] == 4400
    viewer = await visit(path(job))
    await viewer.tell(**{"from": 0, "run": "somebody-else"})
    assert (await viewer.until_closed())[0] == 4404
