"""What many sockets need at the same time is done once; and shells that print without end leave room for others."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agents.models import Host, Location
from console.auth import access
from console.consumers import socket_lifecycle
from console.live import output_share
from console.live.output_share import ALONE_RATE, SHARED_RATE, TURN_BYTES, OutputShare
from console.live.terminals import WINDOW, Terminal
from console.presenters import live
from console.presenters.jobs import job_parts
from console.runtime.database_threads import THREADS, in_database_thread
from jobs.models import Job, LocationBinding, Membership
from tests.unit.console.consumers.fake_shell import FakeShell
from tests.unit.console.consumers.test_live_pages import to_state
from tests.unit.console.views.example_rows import a_host, a_job

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
    rendered = counted(monkeypatch, job_parts, "job_live")
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


async def test_a_page_opens_while_parts_of_other_pages_are_rendered(visit, cast, project, job, monkeypatch):
    """A browser dials one socket at a time: of many pages that come back, the last would wait for all renderings."""
    go_on, honest = threading.Event(), job_parts.job_live

    def rendered(*arguments, **named):
        go_on.wait(60)
        return honest(*arguments, **named)

    monkeypatch.setattr(job_parts, "job_live", rendered)
    others = [await in_database_thread(a_job, project, cast.bob) for _ in range(THREADS + 1)]
    try:
        pages = [await visit(f"/ws/jobs/{each.pk}", "vera") for each in (*others, job)]
        assert not any(page.told for page in pages)
    finally:
        go_on.set()
    for page in pages:
        await page.until(lambda v: v.told)
        await page.leave()


async def test_open_pages_that_show_nothing_new_ask_the_database_once_for_all(visit, job, monkeypatch):
    asked = counted(monkeypatch, job_parts, "job_stamp")
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


async def test_an_echo_is_shown_at_once_only_in_its_turn():
    """Not before a terminal that is full has acknowledged, nor after the end, nor while other shells have turns."""
    shell, shown, opened = FakeShell(), [], asyncio.Event()
    terminal = Terminal(lambda: shell, opened.set, lambda data: shown.append(data) or True)
    async with asyncio.timeout(30):
        while shell.show is None:
            await asyncio.sleep(0.01)
    assert shell.show(b"x" * WINDOW) and not shell.show(b"a")
    terminal.ack(WINDOW)
    assert shell.show(b"b")
    flood = Flood(asyncio.get_running_loop())
    output_share.of_this_loop().ask(flood.step)
    assert not shell.show(b"c")
    output_share.of_this_loop().leave(flood.step)
    assert shell.show(b"d")
    terminal.leave()
    assert not shell.show(b"e")
    await asyncio.to_thread(terminal.close)
    assert shown[1:] == [b"b", b"d"]


class LoopInTime:
    """A loop whose time passes only between its turns, so that a busy machine changes no rate."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, act):
        self.calls.append((when, act))
        return act

    def run(self, seconds):
        end = self.now + seconds
        while self.calls and self.calls[0][0] <= end:
            when, act = self.calls.pop(0)
            self.now = max(self.now, when)
            act()
        self.now = end


async def test_a_shell_that_prints_alone_is_hardly_slowed_down():
    loop, share = LoopInTime(), OutputShare()
    share._loop, flood = loop, Flood(loop)
    share.ask(flood.step)
    loop.run(1.0)
    assert len(flood.reads) * TURN_BYTES // 2 > 0.95 * ALONE_RATE
    share.leave(flood.step)
    before = len(flood.reads)
    loop.run(1.0)
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


# A fragment is rendered for its first viewer. That person's rights change, and nobody else's.


@pytest.fixture
def frozen_checks(monkeypatch):
    """Sockets do not look at rights by their timers, so only what is rendered leads to a new look."""
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 600)


async def two_viewers(visit, path):
    first, second = await visit(path, "bob"), await visit(path, "bella")
    for page in (first, second):
        await page.until(lambda v: v.told)
    return first, second


async def test_a_project_that_the_first_viewer_joins_is_not_shown_to_the_second(
    visit, cast, project, frozen_checks
):
    await in_database_thread(a_job, cast.elsewhere, cast.charlie, name="of-others")
    first, second = await two_viewers(visit, "/ws/jobs")
    await in_database_thread(Membership.objects.create, project=cast.elsewhere, user=cast.bob, role="viewer")
    await first.until(lambda v: "of-others" in v.told[-1]["html"])
    await in_database_thread(a_job, project, cast.bob, name="of-both")
    for page in (first, second):
        await page.until(lambda v: "of-both" in v.told[-1]["html"])
    assert not [told for told in second.told if "of-others" in told["html"] or "elsewhere" in told["html"]]
    for page in (first, second):
        await page.leave()


async def test_a_host_of_a_project_that_the_first_viewer_joins_is_not_shown_to_the_second(
    visit, cast, project, job, frozen_checks
):
    def bind():
        host = a_host("of-others")
        host.location = Location.objects.create(name="bound-1")
        host.save()
        LocationBinding.objects.create(location=host.location, project=cast.elsewhere)

    await in_database_thread(bind)
    first, second = await two_viewers(visit, "/ws/hosts")
    await in_database_thread(Membership.objects.create, project=cast.elsewhere, user=cast.bob, role="viewer")
    await first.until(lambda v: "of-others" in v.told[-1]["html"])
    await in_database_thread(a_host, "of-both")
    for page in (first, second):
        await page.until(lambda v: "of-both" in v.told[-1]["html"])
    assert not [told for told in second.told if "of-others" in told["html"]]
    for page in (first, second):
        await page.leave()


@pytest.mark.parametrize("page", ("/ws/jobs/{job}", "/ws/hosts/{host}"))
async def test_the_second_viewer_stays_when_the_first_is_removed(
    visit, cast, project, job, run, page, monkeypatch, frozen_checks
):
    # Neither viewer is the owner, who has other rights.
    await in_database_thread(Job.objects.filter(pk=job.pk).update, owner=cast.alice)
    where = (job_parts, "job_live") if "job}" in page else (live, "host_live")
    drawn = counted(monkeypatch, *where)
    first, second = await two_viewers(visit, page.format(job=job.pk, host=run.host_id))
    drawn.clear()

    def remove_and_change():
        Membership.objects.filter(user=cast.bob).delete()
        to_state(job, "CANCELLING")
        Host.objects.filter(pk=run.host_id).update(last_error="it-is-broken")

    await in_database_thread(remove_and_change)
    assert (await first.until_closed())[0] == socket_lifecycle.GONE
    await second.until(lambda v: len(v.told) > 1)
    assert second.closed is None and len(first.told) == 2 and "closed" in first.told[-1]
    assert await second.quiet(1.5)
    assert len(drawn) == 2, "once for the person who was removed, once for the one who stays"
    await second.leave()


# Lists do not show what a person may do, so people of one project share them, whatever their roles.


@pytest.mark.parametrize("kind", ["list", "hosts"])
async def test_one_list_serves_people_with_different_roles(visit, project, job, monkeypatch, kind):
    rendered = counted(monkeypatch, live, f"{kind}_live")
    path = {"list": "/ws/jobs", "hosts": "/ws/hosts"}[kind]
    pages = [await visit(path, ("vera", "bob")[n % 2]) for n in range(VIEWERS)]
    for page in pages:
        await page.until(lambda v: v.told)
    assert len(rendered) == 1
    for page in pages:
        await page.leave()


async def test_one_host_list_serves_people_of_different_projects(visit, project, job, run, monkeypatch):
    rendered = counted(monkeypatch, live, "hosts_live")
    await shown_to_both(visit, {"bob": "10.0.0.11", "charlie": "10.0.0.11"})
    assert len(rendered) == 1


async def test_a_job_that_a_host_names_is_shown_to_its_own_project_only(visit, project, job, run):
    broken = Host.objects.filter(pk=run.host_id)
    pages = await shown_to_both(visit, {"bob": "10.0.0.11", "charlie": "10.0.0.11"}, leave=False)
    for text in (f"run {run.pk} is broken", "", f"run {run.pk} is broken again"):
        await in_database_thread(broken.update, last_error=text)
        for page in pages.values():
            ending = "broken again" if "again" in text else "is broken"
            await page.until(lambda v, e=ending, t=text: (e in v.told[-1]["html"]) == bool(t))
    own, foreign = pages["bob"], pages["charlie"]
    assert str(job.pk) in own.told[-1]["html"]
    assert "a job of another project" in foreign.told[-1]["html"]
    assert not [told for told in foreign.told if str(job.pk) in told["html"]]
    for page in pages.values():
        await page.leave()


async def test_the_job_list_is_rendered_again_only_if_its_page_changes(visit, cast, job, monkeypatch):
    rendered = counted(monkeypatch, live, "list_live")
    page = await visit("/ws/jobs?owner=nobody", "vera", page=False)
    await page.until(lambda v: v.told)
    await in_database_thread(to_state, job, "CANCELLING")
    assert await page.quiet(1.5)
    assert len(rendered) == 1
    await page.leave()


async def shown_to_both(visit, texts, leave=True):
    """Each of these people opens the host list and waits for a text."""
    pages = {name: await visit("/ws/hosts", name) for name in texts}
    for name, page in pages.items():
        await page.until(lambda v, text=texts[name]: v.told and text in v.told[-1]["html"])
        if leave:
            await page.leave()
    return pages


async def test_the_stamp_of_the_host_list_has_the_rights_of_its_person(cast, job):
    """The first viewer's page is empty and stays so when they lose a right. The others must not wait with them."""
    before = await in_database_thread(live.hosts_stamp, cast.bob, {"text": "no-such-host"})
    await in_database_thread(Membership.objects.filter(user=cast.bob).delete)
    assert before != await in_database_thread(live.hosts_stamp, cast.bob, {"text": "no-such-host"})
