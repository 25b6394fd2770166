"""A shell that its host keeps: a socket comes and goes, and finds the same shell with its screen.

The page chooses the key of the shell and names the run: `ws /ws/shells/KEY?run=RUN`. So a page that got no answer asks
again and gets the same shell. A page that was reloaded says its first message in the address (`&hello=`), and has its
screen a round trip sooner. What is typed has an offset; the page keeps it until the host has taken it, and sends it
again over the next socket. What is shown has an offset too, at which the next socket goes on.

The end of a socket is not the end of the shell. That is the end of the program on it, of the run, of the owner's right
or login (console/auth/shell_guard.py), or that nobody was there for a time.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra.texts import said
from agents.runner.shells.frames import SILENT_S
from agents.ssh.pty import ShellGone
from console.auth import access, tokens
from console.consumers import credentials
from console.consumers.shells import ShellSocket
from console.consumers.socket_lifecycle import GONE, TRY_AGAIN, BadMessage, Closed, parsed
from console.live.terminals import Event, Terminal
from console.runtime.database_threads import in_database_thread
from jobs import shells
from jobs.models import Run, ShellSession

_CLIENT = re.compile(r"[A-Za-z0-9_-]{8,64}\Z")
# What the page is told of the host's answer.
_ANSWER = ("at", "end", "lost", "modes", "taken", "size", "recording")
_EVENTS = ("took", "lost", "modes", "viewers", "size", "recording")


class HeldShellSocket(ShellSocket):
    patience_s = SILENT_S

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        self._client = ""
        self._from: int | None = None
        self._over = ""
        self._may_type = self._types = self._shared = False

    def authorize(self, user: User) -> None:
        self._session = ShellSession.objects.filter(key=self.arguments["key"]).first()
        run = self._session.run_id if self._session else self._query.get("run", [""])[0][:80]
        rows = Run.objects.select_related("job__project", "host", "replica")
        self.run_row = access.get_or_404(user, self._verb(run), rows, pk=run)
        if self._session is None:
            # A page that stayed open while its replica was started again, on this host or another one.
            self.run_row = shells.newest(self.run_row)
        self._may_type = access.can(user, "shell", self.run_row)
        self._types = self._may_type and "watch" not in self._query
        self.user = user

    def _verb(self, run: str) -> access.Verb:
        """A shell that its owner shares may be watched by more people than may have one."""
        return "watch_shell" if shells.is_shared(run, self.arguments["key"]) else "shell"

    def recheck(self, user: User) -> None:
        rows = Run.objects.select_related("job").only("job__project", "job__owner")
        verb: access.Verb = "shell" if self._types else self._verb(self.run_row.pk)
        access.get_or_404(user, verb, rows, pk=self.run_row.pk)

    def recheck_key(self) -> Hashable:
        return "shell", self.run_row.pk, "" if self._types else self.arguments["key"]

    async def serve(self) -> None:
        for text in self._query.get("hello", [])[:1]:
            await self.on_message(parsed(text))
        await super().serve()

    async def on_message(self, message: dict[str, Any]) -> None:
        if "client" in message:
            if not isinstance(message["client"], str) or not _CLIENT.match(message["client"]):
                raise BadMessage("client must be 8 to 64 letters, digits, - and _.")
            self._client = message["client"]
        if "from" in message:
            if message["from"] is not None and (type(message["from"]) is not int or message["from"] < 0):
                raise BadMessage("from must be an offset, or null.")
            self._from = message["from"]
        if message.get("end") is True and self._terminal is not None and self._types:
            self._terminal.end(said("Closed by {name}.", name=self.user.get_username()))
        if "share" in message:
            if not isinstance(message["share"], bool) or self._session is None or not self._may_type:
                raise BadMessage("share must be true or false, of who may type.")
            await in_database_thread(self._share, self._session, message["share"])
        await super().on_message(message)

    async def on_bytes(self, data: bytes) -> None:
        if not self._types:
            raise BadMessage("You only watch this shell.")
        await super().on_bytes(data)

    def request(self, cols: int, rows: int) -> dict[str, Any]:
        if not self._client:
            raise BadMessage("Send resize and client first.")
        assert self._session is not None
        if self._session.attached_at is None and not self._may_type:
            raise Closed(TRY_AGAIN, said("The shell is not open yet."))
        viewer = {"name": self.user.get_username(), "types": self._types}
        found = {"shell": self._session.key, "client": self._client, "from": self._from, "viewer": viewer}
        if self._session.attached_at is None:
            found["new"] = self.new_shell(self._session.keep_s)
        return {**found, "cols": cols, "rows": rows}

    def why_not(self) -> str | None:
        if self._session is None:
            return super().why_not()
        reason = shells.why_close(self._session, timezone.now())
        if reason:
            raise Closed(GONE, reason)
        return None

    def record_opened(self, address: str) -> ShellSession:
        if self._session is not None:
            return self._session
        kept = shells.Kept(self.arguments["key"], settings.TRAINYARD.shell_keep_s, self._login())
        return shells.record_kept(self.run_row, self.user, address, kept, timezone.now())

    def _login(self) -> str:
        return tokens.digest(credentials.credential(self.scope))

    async def on_ready(self, terminal: Terminal) -> None:
        assert self._session is not None
        await in_database_thread(self._record_attached, self._session)
        answer = {name: terminal.answer.get(name) for name in _ANSWER}
        self._shared = self._session.shared
        told = {"types": self._types, "shared": self._shared, "mayShare": self._may_type}
        await self.send_json({"ready": {**answer, **told}})

    def _record_attached(self, session: ShellSession) -> None:
        is_owner = session.user_id == self.user.pk
        shells.record_attached(session, self._login() if is_owner else "", timezone.now())

    def _share(self, session: ShellSession, shared: bool) -> None:
        # Asked again: the right may have gone since the socket opened.
        if access.can(self.user, "shell", self.run_row):
            shells.share(session, shared, self.user.get_username(), timezone.now())

    async def on_change(self) -> None:
        """Colleagues may watch now, or may not any more: everybody who is there is told."""
        shared = await in_database_thread(shells.is_shared, self.run_row.pk, self.arguments["key"])
        if shared != self._shared and self._ready_sent:
            self._shared = shared
            await self.send_json({"shared": shared})

    async def on_event(self, event: Event) -> None:
        event = event.get("note", event)
        if "end" in event:
            self._over = words_of(event["end"])
            await self.send_json({"end": self._over})
        else:
            # A host may be hostile: it says to the page only what a host has to say.
            await self.send_json({name: event[name] for name in _EVENTS if name in event})

    def record_end(self, session: ShellSession, reason: str) -> None:
        if self._over or self._is_gone():
            shells.record_closed(session, self._over or reason, timezone.now())

    def _is_gone(self) -> bool:
        return self._terminal is not None and isinstance(self._terminal.problem, ShellGone)


def words_of(end: dict[str, Any]) -> str:
    """How a shell ended, for people."""
    if isinstance(reason := end.get("reason"), str) and reason:
        return reason[:200]
    if isinstance(signal := end.get("signal"), int) and signal:
        return f"The shell was ended by signal {signal}."
    status = end.get("status")
    return f"The shell has ended with status {status}." if status else "The shell has ended."
