"""The shell socket: input and output at their pace, the audit row, and the reasons that close a shell."""

from __future__ import annotations

import asyncio
import json
import queue
import threading

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agents.ssh import keys, pty
from agents.ssh.dial import Unreachable
from console.auth import tokens
from console.consumers import shared_checks, socket_lifecycle
from console.consumers import shells as consumer
from console.live import registry
from console.live.terminals import WINDOW, Terminal
from console.models import ApiToken
from console.runtime import database_threads, websocket_protocol
from console.runtime.database_threads import in_database_thread
from jobs import shells
from jobs.models import Job, Run, ShellSession
from tests.harness.wait_and_processes import PROMISED_S


class Output(queue.Queue):
    """The output of a program. `ring` is called when there is new output."""

    def __init__(self):
        super().__init__()
        self.ring = lambda: None

    def put(self, data):
        super().put(data)
        self.ring()


class FakeShell:
    """A fake program on the host: it prints `out`, and its input is collected in `typed`."""

    def __init__(self):
        self.out = Output()
        self.typed = b""
        self.sizes = []
        self.read_bytes = 0
        self.closed = threading.Event()
        self.takes = threading.Event()
        self.takes.set()
        self.flood = False
        # How often output was read, and which of these reads fail because the connection is busy.
        self.asked = {"read": 0, "write": 0}
        self.busy = lambda what, number: False

    def watch(self, arrived):
        loop = asyncio.get_running_loop()
        self.out.ring = lambda: loop.call_soon_threadsafe(arrived)

    def is_busy(self, what):
        self.asked[what] += 1
        return self.busy(what, self.asked[what])

    def read(self):
        if self.is_busy("read"):
            raise BlockingIOError
        try:
            data = b"x" * 65536 if self.flood else self.out.get_nowait()
        except queue.Empty:
            return b""
        self.read_bytes += len(data)
        return data or None

    def write_now(self, data):
        if not self.takes.is_set() or self.is_busy("write"):
            return False
        self.write(data)
        return True

    def write(self, data):
        assert self.takes.wait(30)
        self.typed += data
        self.out.put(b"echo:" + data)

    def resize(self, cols, rows):
        self.sizes.append((cols, rows))
        self.out.put(b"resized")

    def close(self):
        self.closed.set()
        self.flood = False
        self.out.put(b"")


@pytest.fixture
def shell(monkeypatch):
    fake = FakeShell()

    def opening(run, key, cols, rows):
        fake.sizes.append((cols, rows))
        return fake

    monkeypatch.setattr(consumer, "_open", opening)
    return fake


@pytest.fixture
def opened(visit, run, shell):
    async def open_as(who="bob", **options):
        page = await visit(f"/ws/shell/{run.pk}", who, **options)
        await page.tell(resize=[100, 30])
        await page.until(lambda v: {"ready": True} in v.told)
        return page

    return open_as


def end_of(run):
    return ShellSession.objects.filter(run=run).values_list("user_name", "close_reason", "address").get()


async def test_keys_go_to_the_host_and_output_comes_back(opened, run, shell):
    page = await opened()
    assert page.told[0] == {"opening": "train@gpu-a"} and shell.sizes == [(100, 30)]
    await page.type(b"ls\n\x03")
    await page.until(lambda v: v.bytes == b"echo:ls\n\x03")
    await page.tell(resize=[80, 24])
    await page.until(lambda v: v.bytes.endswith(b"resized"))
    assert shell.sizes[-1] == (80, 24)
    shell.out.put(b"")
    assert (await page.until_closed()) == (1000, "The shell has ended.")
    assert await in_database_thread(end_of, run) == ("bob", "The shell has ended.", "192.0.2.7")


async def test_a_keystroke_makes_no_query(opened, shell, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 1e6)
    page = await opened()
    asked = []
    run = database_threads._run
    monkeypatch.setattr(
        database_threads, "_run", lambda *args, **kwargs: asked.append(args) or run(*args, **kwargs)
    )
    for number in range(1, 200):
        await page.type(b"k")
        await page.until(lambda v, number=number: v.bytes.count(b"echo:") == number)
    # Joining the topics gives a hint, which may cause one or two queries. Two hundred keystrokes cause none.
    assert len(asked) <= 2
    await page.leave()
    assert shell.closed.wait(30)


async def test_the_threads_of_a_shell_hold_no_connection(visit, run, monkeypatch):
    """The threads end with the shell. The pool would lose connections that they hold: after 24 shells none was left."""
    fake, held = FakeShell(), []

    def opening(target, key, *where):
        held.extend(each for each in connections.all(initialized_only=True) if each.connection is not None)
        held.append(key.get_name())
        return fake

    monkeypatch.setattr(pty, "open_shell", opening)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    await page.until(lambda v: {"ready": True} in v.told)
    assert held == ["ssh-ed25519"]
    await page.leave()
    assert fake.closed.wait(30)


async def test_an_unreadable_private_key_is_reported(visit, run, shell, monkeypatch):
    def unreadable():
        raise keys.KeyUnreadable("The deployment's SSH key was encrypted with another key.")

    monkeypatch.setattr(keys, "private_key", unreadable)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    assert (await page.until_closed()) == (1013, "The deployment's SSH key was encrypted with another key.")
    assert not await in_database_thread(ShellSession.objects.exists) and shell.sizes == []


async def test_a_flood_of_output_waits_until_the_terminal_acknowledges(opened, shell):
    shell.flood = True
    page = await opened()
    await page.until(lambda v: len(v.bytes) >= WINDOW)
    while not await page.quiet(0.5):
        await page.step()
    assert WINDOW <= len(page.bytes) <= WINDOW + 65536
    assert shell.read_bytes == len(page.bytes)
    # A keystroke gets through in the meantime.
    await page.type(b"\x03")
    assert await in_database_thread(lambda: wait(lambda: shell.typed == b"\x03"))
    await page.tell(ack=len(page.bytes))
    before = len(page.bytes)
    await page.until(lambda v: len(v.bytes) >= before + WINDOW)
    await page.leave()
    assert shell.closed.wait(30)


def wait(true):
    for _ in range(3000):
        if true():
            return True
        threading.Event().wait(0.01)
    return False


async def test_a_paste_is_taken_at_the_hosts_pace(opened, shell):
    page = await opened()
    paste = bytes(range(256)) * 400
    shell.takes.clear()
    for at in range(0, len(paste), 16384):
        await page.type(paste[at : at + 16384])
    await page.tell(ack=0)
    shell.takes.set()
    await page.until(lambda v: any(told.get("ack", 0) >= len(paste) - 32768 for told in v.told))
    assert await in_database_thread(lambda: wait(lambda: shell.typed == paste))
    shell.takes.clear()
    for _ in range(40):
        await page.type(b"y" * 16384)
    assert (await page.until_closed())[0] == 4400
    shell.takes.set()


async def test_output_comes_in_its_order_through_our_server(server, cast, run, shell, monkeypatch):
    """Some output is sent at once, some by the forwarding task, and some by a later read."""
    went = []
    shell.busy = lambda what, number: what == "read" and number % 3 == 0
    honest = websocket_protocol.Protocol.write_frame
    # Every third read finds the connection busy.
    monkeypatch.setattr(
        websocket_protocol.Protocol,
        "write_frame",
        lambda self, frame: went.append(len(went) % 3 < 2 and honest(self, frame)) or went[-1],
    )
    token = (await in_database_thread(tokens.create, cast.bob, "test", timezone.now()))[1]
    headers = {"Authorization": f"Bearer {token}"}
    blocks = [b"%06d " % number * 1000 for number in range(150)]
    async with connect(f"{server}/ws/shell/{run.pk}", additional_headers=headers, proxy=None) as page:
        await page.send(json.dumps({"resize": [80, 24]}))
        for block in blocks:
            shell.out.put(block)
        came = b""
        async with asyncio.timeout(60):
            while len(came) < len(b"".join(blocks)):
                message = await page.recv()
                if isinstance(message, bytes):
                    came += message
                    await page.send(json.dumps({"ack": len(came)}))
    assert came == b"".join(blocks) and 0 < went.count(True) < len(blocks)


async def test_keys_arrive_in_their_order_through_our_server(server, cast, run, shell, monkeypatch):
    """Some input is written at once, some by the shell's thread, some by the task that reads all other messages.

    Too much input ends the shell, as it does through ASGI.
    """
    went = []
    shell.busy = lambda what, number: what == "write" and number % 5 == 0
    honest = consumer.ShellSocket._write_at_once
    monkeypatch.setattr(
        consumer.ShellSocket,
        "_write_at_once",
        lambda self, data: went.append(len(went) % 3 < 2 and honest(self, data)) or went[-1],
    )
    token = (await in_database_thread(tokens.create, cast.bob, "test", timezone.now()))[1]
    headers = {"Authorization": f"Bearer {token}"}
    keys = [b"%06d " % number * 20 for number in range(300)]
    async with connect(f"{server}/ws/shell/{run.pk}", additional_headers=headers, proxy=None) as page:
        await page.send(json.dumps({"resize": [80, 24]}))
        async with asyncio.timeout(60):
            while "ready" not in json.loads(await page.recv()):
                pass
        for key in keys:
            await page.send(key)
        assert await in_database_thread(lambda: wait(lambda: len(shell.typed) >= len(b"".join(keys))))
        assert shell.typed == b"".join(keys) and 0 < went.count(True) < len(keys)
        shell.takes.clear()
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(60):
                for _ in range(100):
                    await page.send(b"y" * 16384)
                while True:
                    await page.recv()
        assert closed.value.rcvd.code == 4400
        shell.takes.set()


async def test_a_busy_shell_is_not_read_after_it_is_closed():
    fake = FakeShell()
    fake.busy = lambda what, number: what == "read"
    terminal = Terminal(lambda: fake, lambda: None, lambda data: False)
    async with asyncio.timeout(60):
        while terminal._retry_timer is None:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(terminal.close)
        while terminal._retry_timer is not None:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("sending", "opened", "takes"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_output_is_sent_at_once_only_if_nothing_is_being_sent(sending, opened, takes):
    page = consumer.ShellSocket({"url_route": {"kwargs": {}}}, None, None)
    page._write = lambda frame: True
    page._sending, page._ready_sent = sending, opened
    assert page._send_at_once(b"x") is takes


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

    def opening(run, key, cols, rows):
        raise Unreachable(words)

    monkeypatch.setattr(consumer, "_open", opening)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    code, reason = await page.until_closed()
    assert code == 1013 and words.startswith(reason) and page.told[-1] == {"closed": words}
    assert (await in_database_thread(end_of, run))[1] == words[:200]


async def test_a_browser_that_closes_while_the_shell_opens_leaves_no_shell(visit, run, shell, monkeypatch):
    go = threading.Event()

    def opening(run, key, cols, rows):
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
