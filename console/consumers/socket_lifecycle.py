"""The life of a WebSocket from the handshake to its end: permission checks, messages, close codes."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import translation

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.sentences import shown
from agents.infra.texts import said
from console.consumers import credentials, shared_checks
from console.live import beats
from console.runtime import websocket_protocol
from console.runtime.client_limits import limits
from console.runtime.client_limits.open_connections import TooMany
from console.runtime.database_threads import in_check_thread, in_database_thread

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger(__name__)

# A permission that is lost ends an open socket within 5 s: this interval, the age of a shared answer, and the check.
# Where a busy process takes longer, a shell takes no keys meanwhile (CHECK_AGE_S).
RECHECK_S = 3.5
# Keys and other acts of a client wait while the last check is older than this, however busy the process is.
CHECK_AGE_S = 5.0
# How long the database may be unavailable before a socket whose permission cannot be checked is closed.
DATABASE_PATIENCE_S = 30.0
# Clients send only short messages: where to read from, how far they have read, keystrokes.
MAX_TEXT = 4096

# Close codes, as the pages understand them (static/live.js, log.js, shell.js).
GONE, RIGHT_LOST, BAD_MESSAGE, TRY_AGAIN = 4404, 4403, 4400, 1013


class Closed(Exception):
    """Raised to close the socket with this code and this reason, which the person reads."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class NoDatabase(Closed):
    def __init__(self) -> None:
        super().__init__(TRY_AGAIN, said("The database does not answer at the moment."))


class BadMessage(Closed):
    def __init__(self, reason: str) -> None:
        super().__init__(BAD_MESSAGE, reason)


class Socket:
    """Checks the right to be here before the handshake is answered and again every RECHECK_S.

    After the handshake its `work` and `on_message` run until one of them ends. `authorize` runs in a thread; it raises
    Http404 or PermissionDenied where the visitor may not be here. `recheck` is the same unless a subclass overrides it.
    """

    # Whether the client is sent beats (console/live/beats.py). Old addresses answer scripts that know none.
    has_beats = True

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self._write = websocket_protocol.direct_writer(scope)
        self.arguments: dict[str, str] = scope["url_route"]["kwargs"]
        self.person_id = 0
        # When the permission was last looked at, on the loop's clock.
        self.checked_at = 0.0
        self._clock = asyncio.get_running_loop().time

    @classmethod
    def as_asgi(cls) -> Callable[[dict[str, Any], Receive, Send], Coroutine[Any, Any, None]]:
        async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            await cls(scope, receive, send).run()

        return application

    @cached_property
    def language(self) -> str:
        return credentials.language(self.scope)

    def authorize(self, user: User) -> None:
        """Check whether this person may open the socket. Runs in a thread and may use the database."""
        raise NotImplementedError

    def recheck(self, user: User) -> Any:
        """Check the permission again. What it returns is given to `rechecked`."""
        return self.authorize(user)

    def rechecked(self, answer: Any) -> None:
        """Called after each check that has passed, with its answer: perhaps that of another socket of the person."""

    def recheck_key(self) -> Hashable:
        """The key of the question that `recheck` asks. Sockets of one person with the same key share one answer."""
        return self

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs side by side until one of it ends: then the socket is closed. Each is a task, and a thousand
        sockets hold it in memory a thousand times.
        """
        return [self.serve()]

    async def serve(self) -> None:
        """Send what the socket is for."""
        raise NotImplementedError

    async def on_message(self, message: dict[str, Any]) -> None:
        """Handle a JSON message from the client. Must not wait for anything slow."""

    async def on_bytes(self, data: bytes) -> None:
        raise BadMessage("Nothing binary is expected here.")

    async def send_json(self, document: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": json.dumps(document, separators=(",", ":"))})

    async def send_bytes(self, data: bytes) -> None:
        await self._send({"type": "websocket.send", "bytes": data})

    async def run(self) -> None:
        await self._receive()
        try:
            await self._admit()
        except Closed as refusal:
            # Before `accept`, this becomes a plain 403 response.
            await self._send({"type": "websocket.close", "code": refusal.code})
            return
        await self._send({"type": "websocket.accept"})
        try:
            with limits.current().by_person.holding(self.person_id), self._beating():
                closing = await self._run_until_one_ends()
        except TooMany as problem:
            await self._send({"type": "websocket.close", "code": TRY_AGAIN, "reason": str(problem)})
            return
        if closing is not None:
            await self._close(closing)

    def _beating(self) -> AbstractContextManager[None]:
        if not self.has_beats or self._write is None:
            return nullcontext()
        return beats.of_this_loop().sent_by(self._write)

    async def _beat(self) -> None:
        """Send beats under a server that does not let frames be written directly."""
        while True:
            await asyncio.sleep(beats.BEAT_S)
            await self._send({"type": "websocket.send", "text": beats.beat_text()})

    async def _admit(self) -> None:
        if not credentials.from_our_page(self.scope):
            raise Closed(RIGHT_LOST, said("This address may not be called from a page of another site."))
        if b"%00" in self.scope.get("query_string", b""):
            raise Closed(GONE, said("There is nothing here."))  # PostgreSQL refuses a NUL in a query
        if not credentials.credential(self.scope):
            # A stranger's handshake costs no thread and no query.
            raise Closed(RIGHT_LOST, said("You are logged out."))
        self.checked_at = self._clock()
        await self._check(self.authorize, admission=True)

    async def _check(self, question: Callable[[User], Any], admission: bool = False) -> Any:
        """Ask in a thread. Raises Closed when the answer is no, NoDatabase when there is none.

        Handshakes have other threads: a thousand browsers that come back must not delay the loss of a right.
        """
        return await self._ask(partial(self._with_user, question), admission)

    async def _ask(self, question: Callable[[], Any], admission: bool = False) -> Any:
        """The same without a look at who the person is."""
        try:
            return await (in_database_thread if admission else in_check_thread)(question)
        except Http404:
            raise Closed(GONE, said("It is not here any more.")) from None
        except PermissionDenied:
            raise Closed(RIGHT_LOST, said("You may not do this any more.")) from None
        except DATABASE_UNAVAILABLE as problem:
            raise NoDatabase from problem

    def _with_user(self, question: Callable[[User], Any]) -> Any:
        user = credentials.user(self.scope)
        if user is None:
            raise Closed(RIGHT_LOST, said("You are logged out."))
        self.person_id = user.pk
        return question(user)

    async def _run_until_one_ends(self) -> Closed | None:
        """Run the socket's tasks until one ends. Returns None when the client has closed the connection itself."""
        work = [self._read(), self._recheck_regularly(), *self.work()]
        if self.has_beats and self._write is None:
            work.append(self._beat())
        tasks = [asyncio.create_task(task) for task in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            done = set()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            closing = next((self._reason_to_close(task) for task in tasks if task in done), None)
            await self.on_end(closing.reason if closing else "The browser closed the connection.")
        return closing

    def _reason_to_close(self, task: asyncio.Task[None]) -> Closed | None:
        problem = task.exception()
        if problem is None:
            return Closed(1000, "")
        if isinstance(problem, Closed):
            return problem
        if isinstance(problem, OSError):
            # uvicorn's ClientDisconnected: the client closed the connection while we were sending.
            return None
        if isinstance(problem, DATABASE_UNAVAILABLE):
            log.warning("The database did not answer: %s", problem)
            return NoDatabase()
        log.error("%s broke", type(self).__name__, exc_info=problem)
        return Closed(TRY_AGAIN, said("An error occurred in the server. The server's log has the details."))

    async def on_end(self, reason: str) -> None:
        """Clean up. Called once at the end, whatever happens."""

    async def _recheck_regularly(self) -> None:
        """Check the permission every RECHECK_S. While the database is unavailable nobody can revoke a permission, so
        the socket waits for the database for a while.
        """
        known_at = self._clock()
        # Sockets that were opened together are not checked together.
        pause = RECHECK_S * random.uniform(0.5, 1)
        while True:
            await asyncio.sleep(pause)
            pause = RECHECK_S
            try:
                await self._check_again()
                known_at = self._clock()
            except NoDatabase:
                # Measured by the clock, because an unavailable database may take long to fail.
                if self._clock() - known_at > DATABASE_PATIENCE_S:
                    raise

    async def _check_again(self) -> None:
        began = self._clock()
        question = (credentials.credential(self.scope), self.recheck_key())
        try:
            self.rechecked(await shared_checks.ask_once(question, partial(self._check, self.recheck)))
        except NoDatabase:
            self.checked_at = began
            raise
        # The answer may be a second old (shared_checks).
        self.checked_at = began

    def is_check_recent(self) -> bool:
        return self._clock() - self.checked_at < CHECK_AGE_S - shared_checks.GOOD_FOR_S

    async def wait_for_check(self) -> None:
        """Wait until the permission was looked at recently. Raises Closed when it is lost.

        While the database is unavailable nobody can revoke a permission, so nothing waits for it.
        """
        if not self.is_check_recent():
            with suppress(NoDatabase):
                await self._check_again()

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise ConnectionResetError
            text = message.get("text")
            if text is None:
                await self.on_bytes(message.get("bytes") or b"")
            else:
                await self.on_message(parsed(text))

    def in_language(self, text: str) -> str:
        """A sentence for the person who reads the page. A script gets English."""
        with translation.override(self.language):
            return shown(text)

    async def _close(self, closing: Closed) -> None:
        reason = self.in_language(closing.reason)
        # A close frame has room for 123 bytes; the full text of an SSH error may need more.
        short = reason.encode()[:120].decode(errors="ignore")
        try:
            if reason:
                await self.send_json({"closed": reason})
            await self._send({"type": "websocket.close", "code": closing.code, "reason": short})
        except (OSError, RuntimeError):
            log.debug("The client closed the connection while we were closing it.")


def parsed(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadMessage("A JSON object is expected.")
    return document
