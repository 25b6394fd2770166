"""What many sockets need at the same time is done once; and shells that print without end leave room for others."""

from __future__ import annotations

import asyncio
import time

from console import presenters
from console.auth import access
from console.consumers import socket_lifecycle
from console.live.output_share import SHARED_RATE, TURN_BYTES, OutputShare
from console.runtime.database_threads import in_database_thread
from jobs.models import Membership
from tests.unit.console.consumers.test_live_pages import to_state

VIEWERS = 12


def counted(monkeypatch, module, name):
    """Replace a function by one that counts its calls."""
    calls, honest = [], getattr(module, name)

    def call(*arguments, **named):
        calls.append(arguments)
        return honest(*arguments, **named)

    monkeypatch.setattr(module, name, call)
    return calls


async def test_one_rendering_serves_all_viewers_with_the_same_rights(visit, job, monkeypatch):
    rendered = counted(monkeypatch, presenters, "job_live")
    pages = [await visit(f"/ws/jobs/{job.pk}", ("vera", "vera", "root")[n % 3]) for n in range(VIEWERS)]
    for page in pages:
        await page.until(lambda v: v.told)
    # One for people who only see the job, one for admins.
    assert len(rendered) == 2
    await in_database_thread(to_state, job, "CANCELLING")
    for page in pages:
        await page.until(lambda v: "Cancelling" in v.told[-1]["html"])
    assert len(rendered) == 4
    buttons = {"Cancel the job" in page.told[0]["html"] for page in (pages[0], pages[1])}
    assert buttons == {False} and "Cancel the job" in pages[2].told[0]["html"]
    for page in pages:
        await page.leave()


async def test_open_pages_that_show_nothing_new_ask_the_database_once_for_all(visit, job, monkeypatch):
    asked = counted(monkeypatch, presenters, "job_stamp")
    checked = counted(monkeypatch, access, "get_or_404")
    pages = [await visit(f"/ws/jobs/{job.pk}", "vera", page=False) for _ in range(VIEWERS)]
    for page in pages:
        await page.until(lambda v: v.told)
    asked.clear(), checked.clear()
    assert await pages[0].quiet(3.0)
    assert 0 < len(asked) <= 5, "once a second, however many pages"
    assert len(checked) <= VIEWERS, "each person has an own token here, and is checked every few seconds"
    assert all(len(page.told) == 1 for page in pages)
    for page in pages:
        await page.leave()


async def test_a_page_gets_the_rendering_for_its_new_rights(visit, cast, project, job, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    vera, other = await visit(f"/ws/jobs/{job.pk}", "vera"), await visit(f"/ws/jobs/{job.pk}", "vera")
    for page in (vera, other):
        await page.until(lambda v: v.told)
        assert "Cancel the job" not in page.told[0]["html"]
    await in_database_thread(Membership.objects.filter(user=cast.vera).update, role="admin")
    for page in (vera, other):
        await page.until(lambda v: "Cancel the job" in v.told[-1]["html"])
        await page.leave()


async def test_a_page_that_joins_late_never_gets_an_older_state(visit, job):
    """The first page was shown the running job. The second joins after a change of which no hint has come."""
    first = await visit(f"/ws/jobs/{job.pk}", "vera")
    await first.until(lambda v: v.told)
    for number in range(5):
        state = ("CANCELLING", "RUNNING")[number % 2]
        await in_database_thread(to_state, job, state)
        late = await visit(f"/ws/jobs/{job.pk}", "vera")
        await late.until(lambda v: v.told)
        assert state.capitalize() in late.told[0]["html"], number
        await late.leave()
        await in_database_thread(job.refresh_from_db)
    await first.leave()


# The share of shells


class Flood:
    """A shell that always has output. It remembers when it was read."""

    def __init__(self, loop):
        self.loop, self.reads = loop, []

    def step(self):
        self.reads.append(self.loop.time())
        return TURN_BYTES // 2


async def test_many_shells_that_print_leave_the_loop_free_and_get_equal_shares():
    loop, share = asyncio.get_running_loop(), OutputShare()
    floods = [Flood(loop) for _ in range(20)]
    for flood in floods:
        share.ask(flood.step)
    begun, laps = loop.time(), 0
    while loop.time() - begun < 2.0:
        await asyncio.sleep(0)
        laps += 1
    turns = [len(flood.reads) / 2 for flood in floods]
    for flood in floods:
        share.leave(flood.step)
    seconds = loop.time() - begun
    assert 0 < sum(turns) * TURN_BYTES / seconds <= 1.3 * SHARED_RATE + 20 * TURN_BYTES
    assert max(turns) - min(turns) <= 2 and laps > sum(turns), "others have their turns in between"


async def test_an_echo_is_read_at_once_beside_shells_that_print():
    loop, share = asyncio.get_running_loop(), OutputShare()
    floods, echoes = [Flood(loop) for _ in range(10)], [b"x"]
    for flood in floods:
        share.ask(flood.step)
    await asyncio.sleep(0.05)
    share.ask(lambda: len(echoes.pop()) if echoes else 0)
    assert not echoes
    for flood in floods:
        share.leave(flood.step)


async def test_a_shell_that_prints_alone_is_hardly_slowed_down():
    loop, share = asyncio.get_running_loop(), OutputShare()
    flood = Flood(loop)
    share.ask(flood.step)
    await asyncio.sleep(1.0)
    share.leave(flood.step)
    assert len(flood.reads) * TURN_BYTES // 2 > 20e6
    before = len(flood.reads)
    await asyncio.sleep(0.05)
    assert len(flood.reads) == before, "a shell that has ended is not read any more"


async def test_the_slower_the_machine_the_longer_shells_rest():
    """Each turn takes 20 ms, as on a machine that others keep busy: most of the time the loop is free all the same."""
    loop, share = asyncio.get_running_loop(), OutputShare()
    busy = []

    class Slow(Flood):
        def step(self):
            begun = time.monotonic()
            time.sleep(0.01)
            size = super().step()
            busy.append(time.monotonic() - begun)
            return size

    floods = [Slow(loop) for _ in range(10)]
    for flood in floods:
        share.ask(flood.step)
    busy.clear()
    begun = time.monotonic()
    await asyncio.sleep(2.0)
    taken = sum(busy) / (time.monotonic() - begun)
    for flood in floods:
        share.leave(flood.step)
    assert taken < 0.35
