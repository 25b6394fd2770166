"""The lines of all logs of a job, in the order of their times, each once.

They come over the socket of the page with all logs (console/consumers/merged_logs.py). Each line is known by its run
and the offset at which it ends: after an interruption of any length, the next socket goes on behind the last line that
was shown of each run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from .connection import Connection, Query
from .errors import ClientError, Offline, Refusal
from .text import harmless
from .websocket import FINAL, SILENT_S, Closed, WebSocket

FIRST_S, MOST_S = 0.3, 10.0
# So many places fit into one message of the socket.
AT_ONCE = 25
# Replicas whose lines are waited for, by name; the others are counted.
SHOWN = 8


@dataclass(frozen=True)
class Line:
    """`at`: seconds since 1970. `note`: the line says what is not there."""

    replica: str
    attempt: int
    start: int
    host: str
    at: float
    text: str
    note: bool


class LogStream:
    """`follow`: go on until the job is over. Else the stream ends with what is stored now."""

    def __init__(
        self, api: Connection, job: str, replicas: str, follow: bool, since: float, say: Callable[[str], None]
    ) -> None:
        self._api, self._job, self._follow, self._say = api, job, follow, say
        self._path = f"/ws/jobs/{job}/log" + (f"?replicas={replicas}" if replicas else "")
        self._since = since
        self._ends: dict[str, int] = {}
        self._is_lost = False
        # Logs of a job that is over, which have not come whole: as it was said last.
        self._waits: list[list[Any]] = []

    def lines(self) -> Iterator[Line]:
        pause = FIRST_S
        while True:
            try:
                for line in self._one_socket():
                    pause = FIRST_S
                    yield line
                return
            except Closed as closed:
                self._raise_if_final(closed)
                why = closed.reason
            except Offline as problem:
                why = problem.message
            if not self._is_lost:
                self._say(f"{why or 'The connection was lost.'} Connecting again, nothing will be missing.")
            self._is_lost = True
            time.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(pause * 2, MOST_S)

    def _one_socket(self) -> Iterator[Line]:
        with closing(WebSocket(self._api.target, self._path)) as socket:
            # What was shown so far, run by run, before the begin.
            places = list(self._ends.items())
            for first in range(0, len(places), AT_ONCE):
                socket.send({"from": dict(places[first : first + AT_ONCE])})
            since = {"since": self._since} if self._since else {}
            socket.send({"begin": True, "whole": True, "follow": self._follow, **since})
            runs: dict[int, dict[str, Any]] = {}
            while True:
                for message in socket.messages(SILENT_S):
                    if isinstance(message, bytes):
                        continue
                    self._heard()
                    for run in message.get("runs", ()):
                        runs[run["number"]] = run
                    for row in message.get("rows", ()):
                        yield from self._new(runs[row[0]], row)
                    self._tell_waits(message.get("waits", self._waits))
                    if "sent" in message:
                        socket.send({"ack": message["sent"]})
                    if message.get("over"):
                        return

    def _new(self, run: dict[str, Any], row: list[Any]) -> Iterator[Line]:
        if row[1] <= self._ends.get(run["id"], 0):
            return
        # Before it is shown: a person who interrupts the printing has seen it.
        self._ends[run["id"]] = row[1]
        if row[2] >= self._since:
            yield Line(
                run["replica"], run["attempt"], run["start"], run["host"], row[2], row[3], len(row) > 4
            )

    def _heard(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._say("Connected again.")

    def _tell_waits(self, waits: list[list[Any]]) -> None:
        """Say once for which logs this waits after the end of the job: it may be long, where a host is silent."""
        if waits and waits != self._waits:
            named = [f"{name} ({host}{'' if up else ' does not answer'})" for name, host, up in waits[:SHOWN]]
            more = f" and {len(waits) - SHOWN} more" if len(waits) > SHOWN else ""
            self._say(
                f"The job is over, but not all of its lines have come: {harmless(', '.join(named))}{more}. "
                "Waiting for them; Ctrl-C ends that."
            )
        self._waits = waits

    def _raise_if_final(self, closed: Closed) -> None:
        """End where another attempt would change nothing. A refused socket does not say why: REST does."""
        if closed.code in FINAL:
            raise ClientError(closed.reason or "The console has closed the log.") from None
        if closed.code in (401, 403, 404):
            query: Query = {"readMask": "state"}
            self._api.get(f"/api/v1/jobs/{self._job}", query)
            raise Refusal(closed.code, "The log of this job cannot be read with this token.") from None
