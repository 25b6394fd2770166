"""What people are told while they follow the logs of a job: of a lost connection, and of a host that is silent."""

from __future__ import annotations

import pytest

from console.client import log_stream
from console.client.connection import Connection, Target
from console.client.log_stream import LogStream
from console.client.websocket import Closed

RUN = {"number": 0, "id": "r", "replica": "workerpool0-0", "attempt": 1, "start": 0, "host": "gpu-a"}
SILENT, LATE = ["workerpool0-0", "gpu-a", False], ["workerpool0-1", "gpu-b", True]


@pytest.fixture
def follow(monkeypatch):
    """follow([message, …], …): a list for each socket → the lines, and what was said."""

    def follow(*sockets):
        left, said = list(sockets), []

        class Socket:
            def __init__(self, target, path):
                pass

            def send(self, message):
                pass

            def close(self):
                pass

            def messages(self, timeout):
                yield from left.pop(0)
                raise Closed(1006, "")

        monkeypatch.setattr(log_stream, "WebSocket", Socket)
        monkeypatch.setattr(log_stream.time, "sleep", lambda seconds: None)
        stream = LogStream(Connection(Target("https://yard.example")), "7", "", True, 0.0, said.append)
        return [line.text for line in stream.lines()], said

    return follow


def test_the_logs_that_are_waited_for_are_named_once(follow):
    lines, said = follow(
        [{"runs": [RUN]}, {"waits": [SILENT, LATE]}],
        [
            {"runs": [RUN]},
            {"waits": [SILENT, LATE]},
            {"waits": [LATE]},
            {"rows": [[0, 5, 1.0, "late"]]},
            {"over": True},
        ],
    )
    assert lines == ["late"]
    first, lost, again, second = said
    assert "workerpool0-0 (gpu-a does not answer), workerpool0-1 (gpu-b). Waiting" in first
    assert "Connecting again" in lost and again == "Connected again."
    assert "have come: workerpool0-1 (gpu-b). Waiting" in second


def test_many_are_counted_and_none_commands_the_terminal(follow):
    _, (said,) = follow([{"waits": [[f"w{n}\x9b2J", "h", True] for n in range(20)]}, {"over": True}])
    assert "w7<U+009B>2J (h) and 12 more." in said


def test_nothing_is_said_of_a_job_whose_logs_are_all_there(follow):
    assert follow([{"waits": []}, {"over": True}]) == ([], [])
