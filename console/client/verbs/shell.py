"""`shell`: a terminal on a replica. Its host keeps the shell: it is there when the person comes back, also over
restarts of the console."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

from .. import configuration
from ..errors import NOT_UNDERSTOOD, ClientError, Offline, Refusal
from ..session import Session
from ..terminal import RawTerminal, write
from ..text import harmless
from ..typed import Typed
from ..websocket import FINAL, SILENT_S, Closed, WebSocket

ACK_STEP = 32 * 1024
FIRST_S, MOST_S, TICK_S = 0.3, 10.0, 1.0
# Keys that waited longer are sent only when the person says so: nobody wants an old `rm` to arrive.
OLD_S = 30.0
KEYS = {"ctrl-]": b"\x1d", "ctrl-\\": b"\x1c", "ctrl-^": b"\x1e", "none": b""}


# Which shells were left: a file of the client.
LEFT, MOST_LEFT = "shells.json", 50


class Detached(Exception):
    """The person has left; the shell goes on."""


def shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="[JOB] [REPLICA]",
        help="such as 42 workerpool0-0; default: your newest job that runs, workerpool0-0",
    )
    parser.add_argument("--new", action="store_true", help="a new shell, also if you have one there")
    parser.add_argument("--attach", default="", metavar="KEY", help="come back to this shell")
    parser.add_argument(
        "--list", action="store_true", dest="only_list", help="the shells of the job that are open"
    )
    parser.add_argument(
        "--detach-key", choices=tuple(KEYS), default="ctrl-]", help="the key that leaves the shell (ctrl-])"
    )


def shell(session: Session) -> int:
    args = session.args
    job, replica = _meant(session)
    if args.only_list:
        for row in _open_shells(session, job):
            print(f"{row.get('key', '')}  {row['replica']}  {harmless(row['owner'])}  {row['openTime']}")
        return 0
    terminal = RawTerminal()
    row = _chosen(session, job, replica)
    leave = "" if args.detach_key == "none" else f" {args.detach_key.capitalize()} leaves it, and it goes on."
    print(f"{row['replica']} of job {job} on {harmless(row['host'])}.{leave}", file=sys.stderr)
    held = HeldShell(session, row, terminal, KEYS[args.detach_key])
    place = f"{session.console.url} {job} {row['replica']}"
    try:
        with terminal:
            words = held.run()
    except Detached:
        _remember(place, str(row["key"]))
        print(
            f"\nLeft. The shell goes on. Come back: trainyard shell {job} {row['replica']}", file=sys.stderr
        )
        return 0
    _remember(place, "")
    print(f"\n{harmless(words)}", file=sys.stderr)
    return 0


def _meant(session: Session) -> tuple[str, str]:
    """The job and the replica. A name of a replica alone is of the newest job that runs."""
    names = list(session.args.names)
    if len(names) > 2:
        raise ClientError("A shell is on one replica.", "Give: trainyard shell JOB REPLICA", NOT_UNDERSTOOD)
    replica = names.pop() if names and "pool" in names[-1] and "/" not in names[-1] else ""
    if len(names) == 2:
        replica = names.pop()
    return session.job_id(names[0] if names else "", "RUNNING"), replica or "workerpool0-0"


def _open_shells(session: Session, job: str) -> list[dict[str, Any]]:
    return list(session.pages(f"/api/v1/jobs/{job}/shells", "shells", {"state": "OPEN", "pageSize": 1000}))


def _chosen(session: Session, job: str, replica: str) -> dict[str, Any]:
    """The shell that the person has left, or another one of theirs that nobody is at, or a new one."""
    args = session.args
    if not args.new:
        rows = [row for row in _open_shells(session, job) if row.get("key")]
        wanted = args.attach or configuration.read_json(LEFT).get(
            f"{session.console.url} {job} {replica}", ""
        )
        for row in rows:
            if row["key"] == wanted:
                return row
        me = session.user()
        for row in rows if not args.attach else ():
            if row["replica"] == replica and row["owner"] == me and not row.get("attended"):
                return row
    if args.attach:
        raise ClientError(
            f"There is no open shell {args.attach}.", f"trainyard shell {job} --list shows them."
        )
    return session.api.post(f"/api/v1/jobs/{job}/shells", {"replica": replica})


def _remember(place: str, key: str) -> None:
    """Keep which shell was left where. The console knows only a moment later that nobody is at it."""
    kept = configuration.read_json(LEFT)
    if kept.pop(place, "") or key:
        newest = [*kept.items(), *([(place, key)] if key else [])][-MOST_LEFT:]
        configuration.write_json(LEFT, dict(newest))


class HeldShell:
    """A shell that its host keeps, over as many connections as it takes."""

    def __init__(self, session: Session, row: Mapping[str, Any], terminal: RawTerminal, leave: bytes) -> None:
        self._session, self._terminal, self._leave = session, terminal, leave
        self._path = f"/ws/shells/{row['key']}?run={quote(str(row['run']), safe='')}"
        self._typed = Typed()
        # The offset up to which the terminal has got the output; of this connection, what it has got and what of it
        # the console knows.
        self._received: int | None = None
        self._shown = self._acked = 0
        self._ended = ""
        self._socket: WebSocket | None = None
        self._is_ready = self._asked = False

    def run(self) -> str:
        """Until the shell ends. Returns why it has. Raises Detached."""
        pause = FIRST_S
        while True:
            try:
                with closing(WebSocket(self._session.target, self._path)) as self._socket:
                    self._greet()
                    self._pass_on(self._socket)
            except Closed as closed:
                if self._ended or closed.code in FINAL or closed.code == 1000:
                    return self._ended or closed.reason or "The shell has ended."
                self._raise_if_refused(closed)
                why = closed.reason
            except Offline as problem:
                why = problem.message
            if self._is_ready or pause == FIRST_S:
                self._say(f"{why or 'The connection was lost.'} Connecting again; what you type waits.")
                pause = FIRST_S
            self._typed.hold()
            self._is_ready, self._socket = False, None
            self._wait_offline(pause)
            pause = min(pause * 2, MOST_S)

    def _raise_if_refused(self, closed: Closed) -> None:
        if closed.code in (401, 403, 404):
            self._session.api.get("/api/v1/projects")
            raise Refusal(closed.code, "The shell is not there any more, or you may not use it.") from None

    def _greet(self) -> None:
        assert self._socket is not None
        self._shown = self._acked = 0
        hello = {"resize": list(self._terminal.size()), "client": self._typed.client, "from": self._received}
        self._socket.send(hello)

    def _pass_on(self, socket: WebSocket) -> None:
        """Pass keys and output on until the socket ends."""
        heard = time.monotonic()
        while True:
            ready = socket.wait(TICK_S, sys.stdin.fileno(), self._terminal.wakes)
            if socket.fileno() in ready:
                heard = time.monotonic()
                for message in socket.messages():
                    if isinstance(message, bytes):
                        self._show(socket, message)
                    else:
                        self._understand(socket, message)
            if time.monotonic() - heard > SILENT_S:
                raise Offline("The console is silent.")
            self._local(ready)

    def _wait_offline(self, seconds: float) -> None:
        """Without a connection: keys are kept, and the person may leave."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready = _readable(left, sys.stdin.fileno(), self._terminal.wakes)
            self._local(ready)

    def _local(self, ready: list[int]) -> None:
        """What the person does: types, changes the size of the window, leaves."""
        if self._terminal.wakes in ready:
            os.read(self._terminal.wakes, 4096)
            if self._is_ready and self._socket is not None:
                self._socket.send({"resize": list(self._terminal.size())})
        if sys.stdin.fileno() not in ready:
            return
        data = os.read(sys.stdin.fileno(), 65536)
        if not data or (self._leave and self._leave in data):
            raise Detached
        if self._asked:
            self._decide(data)
        elif not self._typed.type(data):
            self._say("Too much was typed or pasted while it could not be sent. It is left out.")

    def _decide(self, data: bytes) -> None:
        if data[:1].lower() not in (b"y", b"n"):
            return
        self._asked = False
        if data[:1].lower() == b"n":
            self._typed.forget_unsent()
        if self._socket is not None:
            self._typed.flow(self._socket.send_bytes)

    def _show(self, socket: WebSocket, data: bytes) -> None:
        write(data)
        self._received = (self._received or 0) + len(data)
        self._shown += len(data)
        if self._shown - self._acked >= ACK_STEP:
            self._acked = self._shown
            socket.send({"ack": self._shown})

    def _understand(self, socket: WebSocket, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._open(socket, message["ready"])
        if isinstance(message.get("took"), int):
            self._typed.took(message["took"])
        if isinstance(message.get("lost"), int):
            self._lost(message["lost"], message.get("modes"))
        if isinstance(message.get("recording"), str):
            self._say(f"Output is not recorded at the moment: {message['recording']}")
        self._ended = str(message.get("end") or self._ended)
        if message.get("closed"):
            self._ended = self._ended or ""

    def _open(self, socket: WebSocket, answer: Mapping[str, Any]) -> None:
        if self._received is not None:
            self._say("Connected again.")
        if answer.get("lost") and self._received is not None:
            write(b"\x1bc")
        if isinstance(answer.get("modes"), str):
            write(answer["modes"].encode())
        self._received = int(answer.get("at") or 0)
        self._typed.connected(int(answer.get("taken") or 0))
        if answer.get("recording") is True:
            self._say("This shell is recorded.")
        waiting, was_ready = self._typed.unsent, self._typed.offered > 0
        is_old = bool(waiting) and time.monotonic() - self._typed.since > OLD_S
        is_line = was_ready and (b"\r" in waiting or b"\n" in waiting)
        self._asked = is_old or is_line
        if self._asked:
            self._say(f"{len(waiting)} typed bytes wait. Send them now? [y/n]")
        else:
            self._typed.flow(socket.send_bytes)
        self._is_ready = True

    def _lost(self, at: int, modes: object) -> None:
        self._received = at
        write(b"\x1bc")
        self._say("Output was printed faster than it could be shown here. A part is left out.")
        if isinstance(modes, str):
            write(modes.encode())

    def _say(self, text: str) -> None:
        write(f"\r\n\x1b[2m[{harmless(text)}]\x1b[0m\r\n".encode())


def _readable(timeout: float, *files: int) -> list[int]:
    return select.select(files, [], [], timeout)[0]


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"shell": shell_arguments}
