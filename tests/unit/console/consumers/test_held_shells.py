"""The socket of a shell that its host keeps: the same shell over one socket after the other, and who ends it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.utils import timezone

from agents.ssh import pty
from console.auth import sessions, shell_guard
from console.auth.shell_guard import ShellGuard
from console.consumers import held_shells
from console.consumers import shells as consumer
from console.models import ApiToken
from console.runtime.database_threads import in_database_thread
from jobs import shells
from jobs.models import AuditEntry, Run, ShellSession
from tests.unit.console.consumers.fake_shell import FakeShell

KEY = "0123456789abcdef" * 2


@pytest.fixture
def join(visit, run, shell):
    async def join_as(who="bob", key=KEY, query="", client="client-1", begin=None, **options):
        page = await visit(f"/ws/shells/{key}?run={run.pk}{query}", who, **options)
        await page.tell(resize=[100, 30], client=client, **{"from": begin})
        await page.until(lambda v: any("ready" in told for told in v.told))
        return page

    return join_as


def session_of(run):
    return ShellSession.objects.get(run=run)


async def test_a_second_socket_finds_the_same_shell(join, run, shell):
    first = await join()
    made = shell.requests[-1]
    assert made["shell"] == KEY and made["new"]["keep_s"] == 1800 and made["from"] is None
    session = await in_database_thread(session_of, run)
    title = f"workerpool0-0 of job {run.job_id}"
    assert made["new"]["record"] == {"at": session.opened_at.timestamp(), "title": title}
    assert session.recording == KEY
    assert made["viewer"] == {"name": "bob", "types": True} and made["client"] == "client-1"
    await first.type(b"ls\n")
    await first.until(lambda v: v.bytes == b"echo:ls\n")
    await first.leave()
    row = await in_database_thread(session_of, run)
    assert row.closed_at is None and row.attached_at is not None
    shell.closed.clear()
    shell.answer.update(at=8, taken=3)
    again = await join(begin=8)
    request = shell.requests[-1]
    assert "new" not in request, "it is not made a second time"
    assert request["from"] == 8
    ready = next(told["ready"] for told in again.told if "ready" in told)
    assert (ready["at"], ready["taken"]) == (8, 3)
    assert await in_database_thread(ShellSession.objects.count) == 1
    await again.leave()


async def test_a_page_says_its_first_message_in_the_address(join, visit, run, shell):
    await (await join()).leave()
    hello = quote(json.dumps({"resize": [90, 33], "client": "client-1", "from": 8}))
    page = await visit(f"/ws/shells/{KEY}?run={run.pk}&hello={hello}", "bob")
    await page.until(lambda v: any("ready" in told for told in v.told))
    request = shell.requests[-1]
    assert (request["cols"], request["rows"], request["client"], request["from"]) == (90, 33, "client-1", 8)
    await page.leave()
    page = await visit(f"/ws/shells/{KEY}?run={run.pk}&hello=x", "bob")
    assert (await page.until_closed())[0] == 4400


async def test_a_page_that_got_no_answer_asks_for_the_same_shell(join, visit, run, shell, monkeypatch):
    """The host did not answer at first: the record is there, the shell is not."""
    opening = consumer._open

    def fail(run, key, request):
        raise pty.DialError("gpu-a does not answer")

    monkeypatch.setattr(consumer, "_open", fail)
    page = await visit(f"/ws/shells/{KEY}?run={run.pk}", "bob")
    await page.tell(resize=[80, 24], client="client-1")
    assert (await page.until_closed())[0] == 1013
    monkeypatch.setattr(consumer, "_open", opening)
    page = await join()
    assert shell.requests[-1]["new"]["keep_s"] == 1800
    assert await in_database_thread(ShellSession.objects.count) == 1
    await page.leave()


async def test_what_the_host_tells_reaches_the_page_and_nothing_else_does(join, shell):
    page = await join()
    shell.out.put(b"one")
    shell.out.put({"took": 5})
    shell.out.put({"lost": 70, "modes": "\x1b[?2004h"})
    shell.out.put({"note": {"viewers": [{"name": "x", "types": True}], "closed": "a lie", "ready": {}}})
    shell.out.put({"note": {"end": {"reason": "another lie"}}})
    shell.out.put(b"two")
    await page.until(lambda v: v.bytes == b"onetwo")
    assert page.told[-4:-1] == [
        {"took": 5},
        {"lost": 70, "modes": "\x1b[?2004h"},
        {"viewers": [{"name": "x", "types": True}]},
    ]
    await page.leave()


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"status": 0, "signal": None, "reason": ""}, "The shell has ended."),
        ({"status": 3, "signal": None, "reason": ""}, "The shell has ended with status 3."),
        ({"status": None, "signal": 9, "reason": ""}, "The shell was ended by signal 9."),
        ({"status": None, "signal": 1, "reason": "Nobody was there."}, "Nobody was there."),
    ],
)
async def test_the_end_of_the_shell_closes_its_record(join, run, shell, end, words):
    page = await join()
    shell.out.put({"end": end})
    shell.out.put(b"")
    assert (await page.until_closed())[0] == 1000
    assert {"end": words} in page.told
    row = await in_database_thread(session_of, run)
    assert row.closed_at is not None and row.close_reason == words
    late = await join_refused(page, run)
    assert late == (4404, words)


async def join_refused(page, run):
    """Nothing is sent to the host for a shell that is over."""
    socket = type(page)(f"/ws/shells/{KEY}?run={run.pk}", page.socket.scope["headers"])
    await socket.open()
    await socket.tell(resize=[80, 24], client="client-1")
    return await socket.until_closed()


async def test_a_shell_that_is_gone_from_its_host_is_told_so(visit, run, shell, monkeypatch):
    def gone(run, key, request):
        raise pty.ShellGone("The host was rebooted, and the shell ended with it.")

    monkeypatch.setattr(consumer, "_open", gone)
    page = await visit(f"/ws/shells/{KEY}?run={run.pk}", "bob")
    await page.tell(resize=[80, 24], client="client-1")
    assert await page.until_closed() == (4404, "The host was rebooted, and the shell ended with it.")
    row = await in_database_thread(session_of, run)
    assert row.close_reason.startswith("The host was rebooted")


async def test_a_person_ends_the_shell_and_a_watcher_cannot(join, run, shell):
    watcher = await join("alice", query="&watch=1", client="client-2")
    assert shell.requests[-1]["viewer"] == {"name": "alice", "types": False}
    await watcher.tell(end=True)
    assert await watcher.quiet(0.3)
    await watcher.leave()
    shell.closed.clear()
    page = await join()
    await page.tell(end=True)
    await page.until(lambda v: {"end": "Closed by bob."} in v.told)
    await page.until_closed()


async def test_strangers_find_nothing(visit, join, run):
    """Neither by the key of a shell nor by the run, whether the shell exists or not."""
    page = await join()
    for who in ("vera", "bella", ""):
        for key in (KEY, "f" * 32):
            stranger = await visit(f"/ws/shells/{key}?run={run.pk}", who)
            assert not stranger.accepted
    for path in (f"/ws/shells/{'f' * 32}", f"/ws/shells/{'f' * 32}?run=none", "/ws/shells/short?run=x"):
        assert not (await visit(path, "bob")).accepted
    await page.leave()


@pytest.mark.parametrize("hello", [{"client": "x"}, {"client": 7}, {"from": -1}, {"from": "x"}, {}])
async def test_an_invalid_hello_is_refused(visit, run, shell, hello):
    page = await visit(f"/ws/shells/{KEY}?run={run.pk}", "bob")
    await page.tell(resize=[80, 24], **hello)
    assert (await page.until_closed())[0] == 4400


async def test_a_host_that_is_silent_loses_the_connection_and_not_the_shell(join, run, shell, monkeypatch):
    monkeypatch.setattr(held_shells.HeldShellSocket, "patience_s", 0.2)
    monkeypatch.setattr("console.live.terminals.BEAT_S", 0.1)
    page = await join()
    assert (await page.until_closed())[0] == 1013
    assert "has not answered" in page.told[-1]["closed"] and shell.beats >= 2
    row = await in_database_thread(session_of, run)
    assert row.closed_at is None


# -- the guard -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ended(monkeypatch):
    """The shells that were ended on their hosts."""
    found = []
    monkeypatch.setattr(
        shell_guard, "end_on_host", lambda session: found.append((session.key, session.close_reason))
    )
    return found


def leave_project(run):
    run.job.project.memberships.filter(user__username="bob").delete()


def revoke_tokens(run):
    ApiToken.objects.update(revoked_at=timezone.now())


def log_out(run):
    run.job.owner.sessions.all().delete()


def change_password(run):
    owner = run.job.owner
    owner.set_password("another pass phrase")
    owner.save()


def end_run(run):
    Run.objects.filter(pk=run.pk).update(phase="ended")


@pytest.mark.parametrize(
    ("loss", "by_page", "words"),
    [
        (leave_project, True, shell_guard.NOT_ALLOWED),
        (revoke_tokens, False, sessions.LOGGED_OUT),
        (log_out, True, sessions.LOGGED_OUT),
        (change_password, True, sessions.LOGGED_OUT),
        (end_run, True, "The replica is not running."),
    ],
)
async def test_a_shell_that_nobody_watches_ends_when_its_owner_may_not_have_it(
    join, run, ended, loss, by_page, words
):
    page = await join(page=by_page)
    await page.leave()
    guard = ShellGuard()
    await in_database_thread(guard.look, timezone.now())
    assert ended == []
    await in_database_thread(loss, run)
    await in_database_thread(guard.look, timezone.now() + timedelta(seconds=5))
    await in_database_thread(guard.stop_pool)
    assert ended == [(KEY, words)]
    row = await in_database_thread(session_of, run)
    assert row.closed_at is not None and row.close_reason == words


async def test_a_host_that_does_not_answer_is_asked_again(join, run, monkeypatch):
    page = await join(page=True)
    await page.leave()
    asked = []

    def fail(session):
        asked.append(session.pk)
        raise pty.DialError("no route")

    monkeypatch.setattr(shell_guard, "end_on_host", fail)
    await in_database_thread(log_out, run)
    guard = ShellGuard()
    for later in (0, 5, 10):
        await in_database_thread(guard.look, timezone.now() + timedelta(seconds=later))
        async with asyncio.timeout(20):
            while guard._ending:
                await asyncio.sleep(0.01)
    assert len(asked) == 3
    row = await in_database_thread(session_of, run)
    assert row.closed_at is None and row.close_wanted_at is not None
    await in_database_thread(guard.stop_pool)


async def test_only_one_web_process_looks_at_a_time(join, run, ended):
    page = await join(page=True)
    await page.leave()
    await in_database_thread(log_out, run)
    guards = [ShellGuard(), ShellGuard()]
    now = timezone.now()
    for guard in guards:
        await in_database_thread(guard.look, now)
        await in_database_thread(guard.stop_pool)
    assert len(ended) == 1


async def test_records_of_shells_that_ended_unseen_are_closed(join, run, shell):
    page = await join()
    await page.leave()
    now = timezone.now()
    await in_database_thread(shells.close_abandoned, now + timedelta(minutes=5))
    await in_database_thread(shells.close_unattended, now + timedelta(minutes=30))
    assert (await in_database_thread(session_of, run)).closed_at is None
    await in_database_thread(shells.close_unattended, now + timedelta(minutes=32))
    assert (await in_database_thread(session_of, run)).close_reason == "Nobody was there for 30 minutes."


def test_the_fake_behaves_as_the_real_shell():
    assert {name for name in dir(pty.Shell) if not name.startswith("_")} <= {
        *dir(FakeShell()),
        "wait_for_end",
    }


async def test_a_colleague_watches_a_shell_that_is_shared(join, visit, run, shell):
    owner = await join()
    session = await in_database_thread(session_of, run)
    watcher = await visit(f"/ws/shells/{KEY}?run={run.pk}", "bella")
    assert not watcher.accepted, "it is not shared"
    await in_database_thread(shells.share, session, True, "bob", timezone.now())
    watcher = await join("bella", client="client-2")
    assert shell.requests[-1]["viewer"] == {"name": "bella", "types": False}
    ready = next(told["ready"] for told in watcher.told if "ready" in told)
    assert ready["types"] is False
    await watcher.tell(end=True)
    await watcher.type(b"rm -rf /")
    assert (await watcher.until_closed())[0] == 4400
    assert shell.typed == b"" and not any("end" in told for told in owner.told)
    await owner.leave()


async def test_who_watches_leaves_when_the_shell_is_shared_no_more(join, run, shell):
    owner = await join()
    session = await in_database_thread(session_of, run)
    await in_database_thread(shells.share, session, True, "bob", timezone.now())
    watcher = await join("bella", client="client-2")
    await in_database_thread(shells.share, session, False, "bob", timezone.now())
    assert (await watcher.until_closed())[0] == 4403
    await owner.type(b"ls")
    await owner.until(lambda v: shell.typed == b"ls")
    await owner.leave()


def told_shared(visitor):
    return [told["shared"] for told in visitor.told if "shared" in told]


async def test_a_shell_is_shared_from_its_own_page_and_all_who_are_there_are_told(join, run, shell):
    owner = await join()
    assert next(told["ready"] for told in owner.told if "ready" in told)["mayShare"]
    await owner.tell(share=True)
    await owner.until(lambda v: told_shared(v) == [True])
    watcher = await join("bella", client="client-2")
    ready = next(told["ready"] for told in watcher.told if "ready" in told)
    assert (ready["shared"], ready["mayShare"], ready["types"]) == (True, False, False)
    await watcher.tell(share=True)
    assert (await watcher.until_closed())[0] == 4400
    other = await join("bella", client="client-3")
    await owner.tell(share=False)
    await owner.until(lambda v: told_shared(v) == [True, False])
    assert (await other.until_closed())[0] == 4403
    audited = AuditEntry.objects.filter(what="shell.share").order_by("pk").values_list("actor", "after")
    assert await in_database_thread(list, audited) == [("bob", {"shared": True}), ("bob", {"shared": False})]
    await owner.leave()


async def test_nobody_shares_a_shell_after_the_right_to_it_is_gone(join, run, shell):
    """The socket is open for some seconds more, until it looks at the rights again."""
    owner = await join()
    await in_database_thread(leave_project, run)
    await owner.tell(share=True)
    assert (await owner.until_closed())[0] in (4403, 4404)
    assert not (await in_database_thread(session_of, run)).shared


async def test_nobody_makes_a_shell_by_watching_it(join, visit, run, shell):
    """Its record is there, and its host was never asked."""
    user = await in_database_thread(lambda: run.job.owner)
    kept = shells.Kept(KEY, 1800, "")
    session = await in_database_thread(shells.record_kept, run, user, "", kept, timezone.now())
    await in_database_thread(shells.share, session, True, "bob", timezone.now())
    watcher = await visit(f"/ws/shells/{KEY}?run={run.pk}", "bella")
    await watcher.tell(resize=[80, 24], client="client-2")
    assert (await watcher.until_closed())[0] == 1013 and shell.requests == []
