"""The socket with the logs of all replicas: by time, each line once, bounded, and only for those who may see logs."""

from __future__ import annotations

import asyncio
import time

import pytest
from django.test import Client

from agents.models import Host, HostStatus
from console.consumers import merged_logs
from console.live import merged_parts, registry
from console.presenters.jobs import logs_together
from console.runtime.database_threads import in_database_thread
from jobs.models import Job
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.example_rows import a_host, a_job, a_run

T = 1_700_000_000.0


@pytest.fixture
def patient(monkeypatch):
    """A line that waits for its end is not given before."""
    monkeypatch.setattr(merged_parts, "REST_S", 60.0)


@pytest.fixture
def wide(transactional_db, cast, project):
    return a_job(project, cast.bob, host=a_host("gpu-a"), replicas=3)


@pytest.fixture
def runs(wide):
    return list(wide.runs.select_related("replica", "host").order_by("replica__pool", "replica__index"))


def path(job, query=""):
    return f"/ws/jobs/{job.pk}/log{query}"


async def print_line(run, data, at):
    await in_database_thread(lambda: write(run, data, wall=at))
    registry.of_this_loop().hint(f"log:{run.pk}")


def rows(viewer):
    """(replica, time since T, text) of each row that came."""
    runs = {run["number"]: run["replica"] for told in viewer.told for run in told.get("runs", ())}
    return [(runs[row[0]], row[2] - T, row[3]) for told in viewer.told for row in told.get("rows", ())]


def ends(viewer):
    ids = {run["number"]: run["id"] for told in viewer.told for run in told.get("runs", ())}
    return {ids[row[0]]: row[1] for told in viewer.told for row in told.get("rows", ())}


async def test_the_newest_lines_of_all_come_by_time_and_then_each_new_line(visit, wide, runs, patient):
    for n, run in enumerate(runs):
        await print_line(run, f"first of {n}\n".encode(), T + n)
    await print_line(runs[0], b"later\nhalf a ", T + 10)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: len(rows(v)) == 4)
    names = [run.replica.name for run in runs]
    assert rows(viewer) == [
        (names[0], 0, "first of 0"),
        (names[1], 1, "first of 1"),
        (names[2], 2, "first of 2"),
        (names[0], 10, "later"),
    ]
    await print_line(runs[0], b"line\n", T + 11)
    await print_line(runs[2], b"end", T + 12)
    await in_database_thread(complete, runs[2])
    registry.of_this_loop().hint(f"log:{runs[2].pk}")
    await viewer.until(lambda v: len(rows(v)) == 6)
    assert rows(viewer)[4:] == [(names[0], 11, "half a line"), (names[2], 12, "end")]
    await viewer.leave()


async def test_a_viewer_that_comes_back_gets_what_it_has_not_and_nothing_twice(visit, wide, runs, patient):
    for run in runs[:2]:
        await print_line(run, b"one\ntw", T)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: len(rows(v)) == 2)
    await viewer.leave()
    for run in runs:
        await print_line(run, b"o\nthree\n", T + 1)
    again = await visit(path(wide))
    await again.tell(**{"from": {run.pk: 0 for run in runs} | ends(viewer)})
    await again.tell(begin=True)
    await again.until(lambda v: len(rows(v)) == 6)
    assert sorted(text for _, _, text in rows(again)) == ["o", "three", "three", "three", "two", "two"]
    await again.leave()


async def test_a_restart_is_followed_and_gaps_are_told(visit, wide, runs, monkeypatch):
    monkeypatch.setattr(merged_logs, "LOOK_EVERY_S", 0.0)
    await print_line(runs[0], b"one\n", T)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: rows(v))
    await in_database_thread(lose, runs[0], 100)
    await in_database_thread(complete, runs[0])
    newer = await in_database_thread(lambda: a_run(wide, runs[0].replica, runs[0].host, number=1))
    await print_line(newer, b"again\n", T + 5)
    registry.of_this_loop().hint(f"log:{runs[0].pk}")
    await viewer.until(lambda v: len(rows(v)) == 3)
    texts = [text for _, _, text in rows(viewer)]
    assert sorted(texts) == ["100 bytes are missing: the host's log was cut", "again", "one"]
    assert {told[-1]["start"] for v in viewer.told if (told := v.get("runs"))} == {0, 1}
    await viewer.leave()


async def test_what_a_slow_viewer_cannot_take_is_skipped_and_said(visit, wide, runs, monkeypatch):
    monkeypatch.setattr(merged_logs, "WINDOW", 2000)
    monkeypatch.setattr(merged_logs, "MAX_BEHIND", 4096)
    monkeypatch.setattr(merged_logs, "STEP", 1024)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: any("runs" in told for told in v.told))
    for n in range(100):
        await print_line(runs[0], b"%04d %s\n" % (n, b"x" * 94), T + n)
        if n == 40:
            await viewer.until(lambda v: sum(len(row[2]) for row in rows(v)) > 2000)
            sent = viewer.told[-1]["sent"]
    assert await viewer.quiet()
    await viewer.tell(ack=1 << 60)
    await viewer.until(lambda v: any("are not shown here" in text for _, _, text in rows(v)))
    await viewer.tell(ack=1 << 60)
    await viewer.until(lambda v: rows(v)[-1][2].startswith("0099"))
    shown = [int(text[:4]) for _, _, text in rows(viewer) if "x" in text]
    assert shown == sorted(set(shown)) and len(shown) < 100 and sent > 2000
    await viewer.leave()


async def test_a_paused_viewer_gets_nothing(visit, wide, runs):
    viewer = await visit(path(wide))
    await viewer.tell(begin=True, pause=True)
    await viewer.until(lambda v: any("runs" in told for told in v.told))
    await print_line(runs[0], b"unseen\n", T)
    assert await viewer.quiet()
    await viewer.tell(pause=False)
    await viewer.until(lambda v: rows(v))
    await viewer.leave()


async def test_only_chosen_replicas_are_sent(visit, wide, runs):
    for run in runs:
        await print_line(run, b"hello\n", T)
    viewer = await visit(path(wide, f"?replicas={runs[1].replica.name}"))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: rows(v))
    assert [name for name, _, _ in rows(viewer)] == [runs[1].replica.name]
    await viewer.leave()


async def test_of_too_many_those_that_matter_most_are_sent(visit, wide, runs, monkeypatch):
    """Rank 0, and the one that failed."""
    for run in runs:
        await print_line(run, b"hello\n", T)
    names = [run.replica.name for run in runs]
    monkeypatch.setattr(logs_together, "MAX_REPLICAS", 2)
    await in_database_thread(lambda: wide.replicas.filter(name=names[2]).update(state="FAILED"))
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: len(rows(v)) == 2)
    assert sorted(name for name, _, _ in rows(viewer)) == [names[0], names[2]]
    await viewer.leave()
    several = await visit(path(wide, f"?replicas={','.join(names[:2])}"))
    await several.tell(begin=True)
    await several.until(lambda v: len(rows(v)) == 2)
    assert sorted(name for name, _, _ in rows(several)) == names[:2]
    await several.leave()


async def test_whoever_wants_everything_must_choose_of_too_many(visit, wide, runs, monkeypatch):
    monkeypatch.setattr(logs_together, "MAX_REPLICAS", 2)
    crowd = await visit(path(wide))
    await crowd.tell(begin=True, whole=True)
    code, reason = await crowd.until_closed()
    assert code == 4404 and "more than 128 logs" in reason


async def test_a_restart_of_one_of_as_many_as_can_be_shown_is_shown(visit, wide, runs, monkeypatch):
    """The last bytes of its old log have not come, so it has two that are followed."""
    monkeypatch.setattr(merged_logs, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(logs_together, "MAX_REPLICAS", len(runs))
    await print_line(runs[0], b"one\n", T)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: rows(v))
    newer = await in_database_thread(lambda: a_run(wide, runs[0].replica, runs[0].host, number=1))
    await print_line(newer, b"again\n", T + 5)
    await viewer.until(lambda v: len(rows(v)) == 2)
    await viewer.leave()


async def test_a_bar_comes_without_its_end_and_seldom(visit, wide, runs):
    """A bar that is drawn 40 times in some seconds is sent twice in each of them at most."""
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: any("runs" in told for told in v.told))
    began = time.monotonic()
    for n in range(40):
        await print_line(runs[0], b"\r%3d%%" % n, T + n / 20)
        await asyncio.sleep(0.05)
    await viewer.until(lambda v: rows(v) and rows(v)[-1][2] == "\r 39%")
    took = time.monotonic() - began
    sent = [row for told in viewer.told for row in told.get("rows", ())]
    assert {row[4] for row in sent} == {"open"}
    assert 2 <= len(sent) <= took / merged_parts.REST_S + 2


async def test_an_interrupted_line_goes_on_where_it_was(visit, wide, runs):
    await print_line(runs[0], b"\r 10%", T)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True)
    await viewer.until(lambda v: rows(v))
    await viewer.leave()
    await print_line(runs[0], b"\r 20%\nafter\n", T + 1)
    again = await visit(path(wide))
    await again.tell(**{"from": ends(viewer)})
    await again.tell(begin=True)
    await again.until(lambda v: len(rows(v)) == 2)
    assert [text for _, _, text in rows(again)] == ["\r 20%", "after"]
    await again.leave()


@pytest.mark.parametrize("who", ["charlie", "loner", ""])
async def test_strangers_are_refused(visit, wide, who):
    assert not (await visit(path(wide), who)).accepted


async def test_a_replica_of_another_job_is_refused(visit, wide):
    assert not (await visit(path(wide, "?replicas=workerpool3-9"))).accepted


@pytest.mark.parametrize("message", [{"from": [1]}, {"from": {"r": -1}}, {"from": {"r": "x"}}, {"ack": "x"}])
async def test_a_message_that_is_no_such_ends_the_socket(visit, wide, message):
    viewer = await visit(path(wide))
    await viewer.tell(**message)
    assert (await viewer.until_closed())[0] == 4400


def test_the_page_has_all_replicas(wide, cast):
    browser = Client()
    browser.force_login(cast.vera)
    shown = browser.get(f"/jobs/{wide.pk}/log")
    assert shown.status_code == 200 and f'data-log-url="/jobs/{wide.pk}/log/NAME"' in shown.text
    picker = browser.get(f"/jobs/{wide.pk}/replicas").text
    assert all(replica.name in picker for replica in wide.replicas.all())
    browser.force_login(cast.charlie)
    assert browser.get(f"/jobs/{wide.pk}/log").status_code == 404


async def everything(viewer, places=None, **more):
    """What a viewer gets who wants every line, up to the end of the stream."""
    if places:
        await viewer.tell(**{"from": places})
    await viewer.tell(begin=True, whole=True, **more)
    while not any(told.get("over") for told in viewer.told):
        await viewer.step()
        if "sent" in (viewer.told or [{}])[-1]:
            await viewer.tell(ack=viewer.told[-1]["sent"])
    return rows(viewer)


async def test_whoever_wants_everything_gets_every_line_in_order(visit, wide, runs, monkeypatch):
    """Much more than is sent at once, of one that prints much and two that print little."""
    monkeypatch.setattr(merged_logs, "WINDOW", 2000)
    monkeypatch.setattr(merged_logs, "MAX_BEHIND", 4096)
    monkeypatch.setattr(merged_logs, "STEP", 1024)
    for n in range(0, 300, 10):
        lines = b"".join(b"%04d %s\n" % (n + k, b"x" * 50) for k in range(10))
        await in_database_thread(lambda n=n, lines=lines: write(runs[0], lines, wall=T + n))
    for n in (5, 155, 295):
        await in_database_thread(lambda n=n: write(runs[1], b"little at %d\n" % n, wall=T + n))
    await in_database_thread(lambda: write(runs[2], b"half", wall=T + 1))
    viewer = await visit(path(wide))
    got = await everything(viewer, follow=False)
    assert [text[:4] for replica, _, text in got if replica == runs[0].replica.name] == [
        f"{n:04d}" for n in range(300)
    ]
    assert [text for replica, _, text in got if replica == runs[2].replica.name] == ["half"]
    assert [at for _, at, _ in got] == sorted(at for _, at, _ in got)
    assert await viewer.until_closed() == (1000, "")


async def test_whoever_wants_everything_comes_back_over_two_restarts_and_a_gap(visit, wide, runs):
    await print_line(runs[0], b"one\ntwo\n", T)
    viewer = await visit(path(wide))
    await viewer.tell(begin=True, whole=True)
    await viewer.until(lambda v: len(rows(v)) == 2)
    await viewer.leave()
    places = ends(viewer)
    await print_line(runs[0], b"three\n", T + 1)
    await in_database_thread(lose, runs[0], 100)
    await in_database_thread(complete, runs[0])
    for number in (1, 2):
        newer = await in_database_thread(
            lambda number=number: a_run(wide, runs[0].replica, runs[0].host, number=number)
        )
        await print_line(newer, b"again %d\n" % number, T + 5 + number)
        await in_database_thread(complete, newer)
    for run in runs[1:]:
        await in_database_thread(complete, run)
    await in_database_thread(lambda: Job.objects.filter(pk=wide.pk).update(state="SUCCEEDED"))
    got = await everything(await visit(path(wide)), places)
    assert [text for _, _, text in got] == [
        "three",
        "100 bytes are missing: the host's log was cut",
        "again 1",
        "again 2",
    ]


def waits(viewer):
    return [told["waits"] for told in viewer.told if "waits" in told]


async def test_whoever_waits_for_a_silent_host_is_told_which(visit, wide, runs, monkeypatch):
    monkeypatch.setattr(merged_logs, "WAITS_EVERY_S", 0.0)
    names = [run.replica.name for run in runs]
    await print_line(runs[0], b"one\n", T)
    await in_database_thread(complete, runs[1])
    viewer = await visit(path(wide))
    await viewer.tell(begin=True, whole=True)
    await viewer.until(rows)
    assert await viewer.quiet(1.5) and not waits(viewer), "the job goes on"
    await in_database_thread(lambda: Host.objects.update(status=HostStatus.UNREACHABLE))
    await in_database_thread(lambda: Job.objects.filter(pk=wide.pk).update(state="CANCELLED"))
    await viewer.until(waits)
    assert waits(viewer) == [[[names[0], "gpu-a", False], [names[2], "gpu-a", False]]]
    assert await viewer.quiet(1.5), "said once"
    await print_line(runs[0], b"the last\n", T + 1)
    await in_database_thread(complete, runs[0])
    registry.of_this_loop().hint(f"log:{runs[0].pk}")
    await viewer.until(lambda v: len(waits(v)) == 2)
    assert waits(viewer)[1] == [[names[2], "gpu-a", False]] and rows(viewer)[-1][2] == "the last"
    await in_database_thread(complete, runs[2])
    await viewer.until(lambda v: v.told[-1].get("over"))
    assert await viewer.until_closed() == (1000, "")


async def test_whoever_wants_only_what_is_stored_waits_for_nothing(visit, wide, runs, monkeypatch):
    monkeypatch.setattr(merged_logs, "WAITS_EVERY_S", 0.0)
    await in_database_thread(lambda: Job.objects.filter(pk=wide.pk).update(state="CANCELLED"))
    viewer = await visit(path(wide))
    await everything(viewer, follow=False)
    assert not waits(viewer)


async def test_the_stream_begins_at_a_time_with_the_first_whole_line(visit, wide, runs):
    for n in range(10):
        await print_line(runs[0], b"at %d\n" % n, T + n)
    got = await everything(await visit(path(wide)), since=T + 7, follow=False)
    assert [text for _, _, text in got] == ["at 7", "at 8", "at 9"]


async def test_a_time_that_is_none_is_refused(visit, wide):
    viewer = await visit(path(wide))
    await viewer.tell(begin=True, whole=True, since="yesterday")
    assert (await viewer.until_closed())[0] == 4400
