"""A shell in the browser: moves bytes between xterm.js and a terminal in the run on its host.

The database is used when the shell opens (permission, audit row) and by a timer (does the permission still hold, does
the run still run), but not for a keystroke. Output waits for the terminal's acknowledgements; input is acknowledged
when the host has taken it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Hashable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from agents.infra.texts import said
from agents.runner.shells.frames import PATIENT_S
from agents.ssh import keys, pty
from agents.ssh.pty import ShellGone
from agents.ssh.targets import Target
from console.auth import access
from console.consumers import credentials
from console.consumers.socket_lifecycle import (
    GONE,
    RIGHT_LOST,
    TRY_AGAIN,
    BadMessage,
    Closed,
    Receive,
    Send,
    Socket,
)
from console.live import registry
from console.live.terminals import ACK_STEP, Terminal
from console.runtime import websocket_protocol
from console.runtime.database_threads import in_database_thread
from jobs import shells
from jobs.models import Run, ShellSession

# The page sends its size first. A page that does not gets the traditional size of a terminal.
WAIT_FOR_SIZE_S = 5.0
DEFAULT_SIZE = (80, 24)


class ShellSocket(Socket):
    """A shell that ends with its socket."""

    patience_s = PATIENT_S
    # Whether the person may type, and does not only watch.
    _types = True

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self._size: tuple[int, int] | None = None
        self._changed = asyncio.Event()
        self._terminal: Terminal | None = None
        self._session: ShellSession | None = None
        websocket_protocol.receive_directly(scope, self._write_at_once)
        self._write_echo = websocket_protocol.writer_of_echoes(scope)
        self._ready_sent = self._sending = self._held = False
        self._name = secrets.token_hex(16)

    def authorize(self, user: User) -> None:
        rows = Run.objects.select_related("job__project", "host", "replica")
        self.run_row = access.get_or_404(user, "shell", rows, pk=self.arguments["run_id"])
        self.user = user

    def recheck(self, user: User) -> None:
        rows = Run.objects.select_related("job").only("job__project", "job__owner")
        access.get_or_404(user, "shell", rows, pk=self.run_row.pk)

    def recheck_key(self) -> Hashable:
        return "shell", self.run_row.pk

    async def _check_again(self) -> None:
        """One look at the rights of a person for all their shells on this run; then each looks at its own record."""
        await super()._check_again()
        await self._ask(self._look_at_record)

    def _look_at_record(self) -> None:
        reason = shells.why_close(self._session, timezone.now()) if self._session else None
        if reason:
            raise Closed(RIGHT_LOST, reason)

    async def on_message(self, message: dict[str, Any]) -> None:
        if "resize" in message:
            self._size = _size(message["resize"])
            if self._terminal is not None:
                self._terminal.resize(*self._size)
            self._changed.set()
        if "ack" in message and self._terminal is not None:
            if not isinstance(message["ack"], int):
                raise BadMessage("ack is not a whole number.")
            self._terminal.ack(message["ack"])

    async def on_bytes(self, data: bytes) -> None:
        if self._terminal is None:
            raise BadMessage("The shell is not open yet.")
        self._held = True
        try:
            await self.wait_for_check()
        finally:
            self._held = False
        if not self._terminal.write(data):
            raise BadMessage("More input was sent than the host can take.")

    def _write_at_once(self, data: bytes) -> bool:
        """Write input at once. Without a terminal, or without room, the bytes go to `on_bytes`, which refuses them.

        While it is not known whether the person may still type, they go there too, and wait for the answer. Later bytes
        wait behind them.
        """
        if self._terminal is None or self._held or not self._types or not self.is_check_recent():
            return False
        return self._terminal.write(data)

    async def serve(self) -> None:
        run = self.run_row
        async with registry.of_this_loop().watch(f"job:{run.job_id}", f"shells:{run.pk}") as hinted:
            cols, rows = await self._requested_size()
            key = await in_database_thread(self._open_session)
            await self.send_json({"opening": f"{run.host.user}@{run.host.name}"})
            opening = partial(_open, run, key, self.request(cols, rows))
            self._terminal = Terminal(opening, self._changed.set, self._send_at_once, self.patience_s)
            forwarding = asyncio.create_task(self._forward_output(self._terminal))
            try:
                while not forwarding.done():
                    hint = asyncio.create_task(hinted.wait(60))
                    await asyncio.wait({forwarding, hint}, return_when=asyncio.FIRST_COMPLETED)
                    if hint.done() and hint.result():
                        # The job has changed. If this ends the shell, end it now and not at the next timer check.
                        await self._check(self.recheck)
                        await self._ask(self._look_at_record)
                        await self.on_change()
                    hint.cancel()
                forwarding.result()
            finally:
                forwarding.cancel()

    async def on_end(self, reason: str) -> None:
        if self._terminal is not None:
            self._terminal.leave()
            await asyncio.to_thread(self._terminal.close)
        if self._session is not None:
            await in_database_thread(self.record_end, self._session, reason or "The shell ended.")

    def record_end(self, session: ShellSession, reason: str) -> None:
        """The socket has ended: note what that means for the shell."""
        shells.record_closed(session, reason, timezone.now())

    async def on_ready(self, terminal: Terminal) -> None:
        """The shell is open."""
        await self.send_json({"ready": True})

    async def on_change(self) -> None:
        """The record of the shell may have changed."""

    async def on_event(self, event: dict[str, Any]) -> None:
        """The host has told something about the shell."""

    def _open_session(self) -> keys.PrivateKey:
        """Write the audit row before the shell opens, and return the private key that opens it.

        All database work for opening is done here: a thread of the terminal would keep its connection as long as it
        lives, and PostgreSQL's pool would not get it back.
        """
        if reason := self.why_not():
            raise Closed(RIGHT_LOST, reason)
        try:
            key = keys.private_key()
        except keys.KeyUnreadable as problem:
            raise Closed(TRY_AGAIN, str(problem)) from problem
        with transaction.atomic():
            self._session = self.record_opened(credentials.address(self.scope))
        return key

    def why_not(self) -> str | None:
        return shells.why_not(self.run_row) or shells.too_many(self.user)

    def record_opened(self, address: str) -> ShellSession:
        return shells.record_opened(self.run_row, self.user, address, timezone.now(), self._name)

    async def _requested_size(self) -> tuple[int, int]:
        try:
            async with asyncio.timeout(WAIT_FOR_SIZE_S):
                await self._changed.wait()
        except TimeoutError:
            return DEFAULT_SIZE
        self._changed.clear()
        return self._size or DEFAULT_SIZE

    def request(self, cols: int, rows: int) -> dict[str, Any]:
        """What the host is asked for: a shell that ends with its connection."""
        viewer = {"name": self.user.get_username(), "types": True}
        size = {"cols": cols, "rows": rows}
        return {"shell": self._name, "new": self.new_shell(0), "client": self._name, "viewer": viewer, **size}

    def new_shell(self, keep_s: int) -> dict[str, Any]:
        """How the host makes the shell."""
        assert self._session is not None
        run, opened = self.run_row, self._session.opened_at
        title = f"{run.replica.name} of job {run.job_id}"
        record = {"record": {"at": opened.timestamp(), "title": title}} if self._session.recording else {}
        return {"keep_s": keep_s, **record}

    def _send_at_once(self, data: bytes) -> bool:
        """Send output without the task that forwards it, while that task has no output of its own."""
        if self._write_echo is None or self._sending or not self._ready_sent:
            return False
        return self._write_echo(websocket_protocol.binary_frame(data))

    async def _forward_output(self, terminal: Terminal) -> None:
        """Forward the terminal's output and acknowledgements to the browser."""
        acked = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            if terminal.open and not self._ready_sent:
                await self.on_ready(terminal)
                self._ready_sent = True
            self._sending = True
            for item in terminal.output():
                if isinstance(item, bytes):
                    await self.send_bytes(item)
                else:
                    await self.on_event(item)
            self._sending = False
            if terminal.written - acked >= ACK_STEP:
                acked = terminal.written
                await self.send_json({"ack": acked})
            if terminal.ended and not self._changed.is_set():
                raise _ending(terminal.problem)


def _open(run: Run, key: keys.PrivateKey, request: dict[str, Any]) -> pty.Shell:
    request = {"deployment": settings.DEPLOYMENT, "run": run.pk, **request}
    return pty.open_shell(Target.of(run.host), key, request)


def _ending(problem: Exception | None) -> Closed:
    if problem is None:
        return Closed(1000, said("The shell has ended."))
    if isinstance(problem, ShellGone):
        return Closed(GONE, str(problem))
    return Closed(TRY_AGAIN, str(problem))


def _size(given: object) -> tuple[int, int]:
    if (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(n, int) and 0 < n <= 1000 for n in given)
    ):
        return given[0], given[1]
    raise BadMessage("resize must be [columns, rows].")
