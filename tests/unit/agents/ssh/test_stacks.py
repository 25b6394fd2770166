"""What a host tells of stacks is not trusted: bounded, one line each, and of the type that is expected."""

from __future__ import annotations

import math

import pytest

from agents.runner.shells import stacks as on_host
from agents.ssh import stacks
from agents.ssh.stacks import NoStacks, ProcessStacks, Thread


class Connection:
    def close(self):
        self.closed = True


@pytest.fixture
def ask(monkeypatch):
    """What a console gets from a host that answers so: the head, and the bytes behind it."""

    def ask(head, data=b"", runs=("r1",), room=on_host.MAX_BYTES):
        class Channel:
            def recv(self, size):
                nonlocal data
                part, data = data[: min(size, 7)], data[min(size, 7) :]
                return part

        connection = Connection()
        monkeypatch.setattr(stacks, "dial", lambda *given, **more: connection)
        monkeypatch.setattr(stacks, "start_mode", lambda *given: (Channel(), head, b""))
        try:
            return stacks.look(None, None, "dep", runs, math.inf, room)
        finally:
            assert connection.closed

    return ask


def test_what_it_tells_is_read(ask):
    data = (
        b'{"runs": {"r1": {"container": true, "processes": [{"pid": 7, "command": "python3 x", "left_out": 2,'
        b' "threads": [["MainThread", "idle", ["f (x.py:1)", "g (x.py:2)"]]]}, {"pid": 8, "command": "",'
        b' "problem": "denied"}], "left_out": 3}}, "ptrace_scope": 1}'
    )
    found = ask({"ok": True, "size": len(data)}, data)["r1"]
    seen = ProcessStacks(7, "python3 x", (Thread("MainThread", "idle", ("f (x.py:1)", "g (x.py:2)")),), 2, "")
    assert found.processes == (seen, ProcessStacks(8, "", (), 0, "denied"))
    assert (found.in_container, found.left_out, found.ptrace_scope, found.error) == (True, 3, 1, "")


@pytest.mark.parametrize(
    ("head", "data", "words"),
    [
        ({"error": "not\x1b[31m today"}, b"", "not[31m today"),
        ({}, b"", "does not answer"),
        ({"ok": True, "size": 1 << 40}, b"", "more than was asked for"),
        ({"ok": True, "size": "9"}, b"", "more than was asked for"),
        ({"ok": True, "size": 90}, b"{}", "ended too early"),
        ({"ok": True, "size": 9}, b'{"runs": ', "the host sent no stacks"),
        ({"ok": True, "size": 200}, b"[" * 200, "the host sent no stacks"),
        ({"ok": True, "size": 13}, b'{"runs": NaN}', "the host sent no stacks"),
    ],
)
def test_an_answer_that_is_none_is_refused(ask, head, data, words):
    with pytest.raises(NoStacks) as refused:
        ask(head, data)
    assert words in str(refused.value)


def test_why_nobody_may_look_is_a_sentence_of_ours():
    """So that a page can show it in the language of its reader. What a newer runner says is shown as it is."""
    found = {"error": "this run does not allow shells", "reason": "no_shells"}
    assert stacks.read_run(found, 0).error is stacks.REASONS["no_shells"]
    for reason in ("new", 7, None, ["no_shells"]):
        assert stacks.read_run({**found, "reason": reason}, 0).error == found["error"]


def test_what_is_more_than_the_room_of_its_runs_is_refused(ask):
    data = b'{"runs": {"r1": {}}}' + b" " * 40_000
    assert ask({"ok": True, "size": len(data)}, data)["r1"].error == ""
    with pytest.raises(NoStacks, match="more than was asked for"):
        ask({"ok": True, "size": len(data)}, data, room=8 * 1024)


@pytest.mark.parametrize(
    "told",
    [
        b"7",
        b'{"processes": 7, "left_out": -1, "container": "yes"}',
        b'{"processes": [7, {"threads": 7, "pid": "x", "command": 7}]}',
        b'{"processes": [{"threads": [7, [], ["a", "b"], [7, 7, 7], [null, null, [null]]]}]}',
    ],
)
def test_nonsense_is_read_as_nothing(ask, told):
    data = b'{"runs": {"r1": ' + told + b', "r9": {}}, "ptrace_scope": -7}'
    found = ask({"ok": True, "size": len(data)}, data)
    assert list(found) == ["r1"], "nobody has asked for r9"
    assert found["r1"].left_out == 0 and found["r1"].ptrace_scope == 0 and not found["r1"].in_container
    assert all(thread.state == "idle" for each in found["r1"].processes for thread in each.threads)


def test_texts_are_short_and_of_one_line(ask):
    frame = b'"f\\n    g (x.py:1)\\u202e' + b"y" * 900 + b'"'
    data = b'{"runs": {"r1": {"processes": [{"threads": [["a\\u0000b", "idle", [' + frame + b"]]]}]}}}"
    (process,) = ask({"ok": True, "size": len(data)}, data)["r1"].processes
    (thread,) = process.threads
    assert thread.name == "ab" and len(thread.frames[0]) == on_host.MAX_TEXT
    assert thread.frames[0].startswith("f g (x.py:1)y")


def test_a_host_without_py_spy_gets_it_once(ask, monkeypatch):
    put = []
    monkeypatch.setattr(stacks.tools, "put", lambda connection, machine: put.append(machine) or True)
    with pytest.raises(NoStacks):
        ask({"error": "", "missing": "x86_64"})
    assert put and set(put) == {"x86_64"} and len(put) <= 3
    monkeypatch.setattr(stacks.tools, "put", lambda *given: False)
    with pytest.raises(NoStacks, match="py-spy could not be put"):
        ask({"error": "", "missing": "x86_64"})
