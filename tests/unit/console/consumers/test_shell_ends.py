"""The shell socket: who may open a shell, its audit row, and the reasons that close it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.contrib.auth.models import User
from django.db import connections

from agents.ssh.dial import Unreachable
from console.auth import access
from console.consumers import credentials, shared_checks, socket_lifecycle
from console.consumers import shells as consumer
from console.live import registry
from console.models import ApiToken
from console.runtime.database_threads import in_database_thread
from jobs import shells
from jobs.models import Job, Run, ShellSession
from tests.harness.wait_and_processes import PROMISED_S
from tests.unit.console.consumers.fake_shell import end_of


def end_run(run):
    Run.objects.filter(pk=run.pk).update(phase="ended")


def leave(run):
    run.job.project.memberships.filter(user__username="bob").delete()


def demote(run):
    run.job.project.memberships.filter(user__username="bob").update(role="viewer")


def disable(run):
    User.objects.filter(username="bob").update(is_active=False)


def close_by_admin(run):
    ShellSession.objects.filter(run=run).update(closed_at=run.created_at, close_reason="Closed by root.")


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (end_run, {"not running"}),
        (leave, {"not here", "may not"}),
        (demote, {"may not"}),
        (disable, {"logged out"}),
        (close_by_admin, {"Closed by root."}),
    ],
)
@pytest.mark.parametrize("hinted", [True, False])
async def test_a_shell_closes_when_its_permission_or_run_ends(
    opened, run, shell, monkeypatch, loss, words, hinted
):
    if not hinted:
        monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.1)
    page = await opened(page=True)
    await in_database_thread(loss, run)
    if hinted:
        registry.of_this_loop().hint(f"job:{run.job_id}")
    async with asyncio.timeout(PROMISED_S):
        code, reason = await page.until_closed()
    assert code in (4403, 4404) and any(word in reason for word in words)
    assert page.told[-1] == {"closed": reason} and shell.closed.wait(PROMISED_S)
    assert await in_database_thread(lambda: ShellSession.objects.exclude(closed_at=None).count()) == 1


async def test_a_person_who_may_not_open_a_shell_reads_why(visit, run, shell):
    await in_database_thread(
        lambda: Job.objects.filter(pk=run.job_id).update(spec={**run.job.spec, "enableWebAccess": False})
    )
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    code, reason = await page.until_closed()
    assert code == 4403 and "enableWebAccess" in reason
    assert not await in_database_thread(ShellSession.objects.exists) and shell.sizes == []


async def test_a_person_has_a_limited_number_of_shells(opened, visit, run, shell, monkeypatch):
    monkeypatch.setattr(shells, "MAX_OPEN", 1)
    first = await opened()
    second = await visit(f"/ws/shell/{run.pk}", "bob")
    await second.tell(resize=[80, 24])
    code, reason = await second.until_closed()
    assert (code, reason) == (
        socket_lifecycle.RIGHT_LOST,
        "1 shells of yours are open already. Close one first.",
    )
    assert await in_database_thread(ShellSession.objects.count) == 1
    other = await opened("alice")
    for page in (first, other):
        await page.leave()


async def test_an_ssh_error_is_shown_word_for_word(visit, run, monkeypatch):
    words = "gpu-a did not answer: [Errno 113] No route to host. " * 5 + "!"

    def opening(run, key, request):
        raise Unreachable(words)

    monkeypatch.setattr(consumer, "_open", opening)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    code, reason = await page.until_closed()
    assert code == 1013 and words.startswith(reason) and page.told[-1] == {"closed": words}
    assert (await in_database_thread(end_of, run))[1] == words[:200]


async def test_a_browser_that_closes_while_the_shell_opens_leaves_no_shell(visit, run, shell, monkeypatch):
    go = threading.Event()

    def opening(run, key, request):
        assert go.wait(30)
        return shell

    monkeypatch.setattr(consumer, "_open", opening)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    await page.until(lambda v: v.told)
    await page.leave()
    go.set()
    assert shell.closed.wait(30)
    assert (await in_database_thread(end_of, run))[1] == "The browser closed the connection."


@pytest.mark.parametrize("text", ['{"resize": [0, 1]}', '{"resize": "wide"}', '{"resize": [1e9, 2]}', "7"])
async def test_an_invalid_message_ends_the_shell(opened, shell, text):
    page = await opened()
    await page.say(text)
    assert (await page.until_closed())[0] == 4400
    assert shell.closed.wait(30)


async def test_keys_wait_while_nobody_knows_whether_the_person_may_still_type(opened, shell, monkeypatch):
    """A process that is so busy that its checks are late takes no keys from somebody who has lost the right."""
    page = await opened()
    answer, lost = threading.Event(), []
    honest = socket_lifecycle.Socket._with_user

    def late(self, question):
        assert answer.wait(30)
        if lost:
            raise socket_lifecycle.Closed(socket_lifecycle.RIGHT_LOST, "You may not do this any more.")
        honest(self, question)

    monkeypatch.setattr(socket_lifecycle.Socket, "_with_user", late)
    monkeypatch.setattr(socket_lifecycle, "CHECK_AGE_S", shared_checks.GOOD_FOR_S)
    await page.type(b"first")
    assert await page.quiet(0.5) and shell.typed == b""
    answer.set()
    await page.until(lambda page: b"first" in page.bytes)
    lost.append(True)
    await asyncio.sleep(shared_checks.GOOD_FOR_S)
    await page.type(b"rm -rf")
    assert (await page.until_closed())[0] == 4403
    assert shell.typed == b"first"


async def test_checks_of_permissions_do_not_wait_for_pages_that_are_rendered(opened, shell, monkeypatch):
    """All threads that render are busy for longer than the test takes; a lost right ends the shell all the same."""
    page = await opened()
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    over = threading.Event()
    busy = [asyncio.create_task(in_database_thread(over.wait, 60)) for _ in range(20)]
    await asyncio.to_thread(end_all_tokens)
    try:
        assert await asyncio.to_thread(shell.closed.wait, 20)
    finally:
        over.set()
        await asyncio.gather(*busy)
    assert (await page.until_closed())[0] == 4403


def end_all_tokens():
    ApiToken.objects.all().delete()
    connections.close_all()


async def test_one_look_at_the_rights_serves_all_shells_of_a_person_on_a_run(opened, shell, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    monkeypatch.setattr(credentials, "credential", lambda scope: "the same session")
    looked, look = [], access.get_or_404
    pages = [await opened() for _ in range(6)]
    await asyncio.sleep(1.5)  # at each hint that a shell has opened, all look
    monkeypatch.setattr(
        access, "get_or_404", lambda *asked, **named: looked.append(1) or look(*asked, **named)
    )
    assert await pages[0].quiet(2.5)
    assert 0 < len(looked) <= 4, "once a second, however many shells"
    for page in pages:
        await page.leave()
