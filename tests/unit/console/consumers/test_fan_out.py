"""Many viewers at the live end of one log, with our own server: one read, one frame, each viewer at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from django.utils import timezone
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from console.auth import tokens
from console.consumers import logs, shared_checks, socket_lifecycle
from console.live import registry, tails
from console.runtime import websocket_protocol
from console.runtime.database_threads import in_database_thread
from jobs.models import Membership
from tests.unit.console.consumers.test_logs import grow, path
from tests.unit.console.log_rows import lose, write

PATIENCE_S = 60


class Viewer:
    """A client that acknowledges only when the test says so."""

    def __init__(self, connection):
        self.connection = connection
        self.bytes, self.told = b"", []

    async def tell(self, **message):
        await self.connection.send(json.dumps(message))

    async def until(self, true):
        async with asyncio.timeout(PATIENCE_S):
            while not true(self):
                message = await self.connection.recv()
                if isinstance(message, bytes):
                    self.bytes += message
                elif not message.startswith('{"beat"'):
                    self.told.append(json.loads(message))

    async def until_closed(self):
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self.connection.recv()
        return self.connection.close_code


@pytest.fixture
async def watch(server, cast, job):
    """watch("vera"): a client with Vera's token at the socket of the job's log."""
    opened = []
    tokens_of = {}

    async def open_as(who="vera"):
        if who not in tokens_of:
            tokens_of[who] = (
                await in_database_thread(tokens.create, getattr(cast, who), "test", timezone.now())
            )[1]
        headers = {"Authorization": f"Bearer {tokens_of[who]}"}
        opened.append(await connect(server + path(job), additional_headers=headers, proxy=None))
        return Viewer(opened[-1])

    yield open_as
    for connection in opened:
        await connection.close()


@pytest.fixture
def written(monkeypatch):
    """The frames that were sent without the viewers' tasks."""
    frames = []
    honest = websocket_protocol.Protocol.write_frame

    def write_frame(self, frame):
        went = honest(self, frame)
        frames.append((self, frame, went))
        return went

    monkeypatch.setattr(websocket_protocol.Protocol, "write_frame", write_frame)
    return frames


async def test_each_viewer_gets_every_byte_once_at_its_own_pace(watch, job, run, written):
    begin = b"x" * (logs.WINDOW - 20)
    await in_database_thread(write, run, begin)
    live, late, slow, paused = [await watch() for _ in range(4)]
    for viewer, place in (
        (live, {"tail": 0}),
        (late, {"from": 0}),
        (slow, {"from": 0}),
        (paused, {"tail": 0}),
    ):
        await viewer.tell(**place)
    # What is written before a viewer has its place at the end would not be sent to it.
    for viewer in (live, paused):
        await viewer.until(lambda v: v.told)
    await paused.tell(pause=True)
    for viewer in (late, slow):
        await viewer.until(lambda v: v.bytes == begin)
    await late.tell(ack=len(begin))
    lines = [b"line %d\n" % n for n in range(40)]
    for line in lines:
        await grow(run, line)
        await live.until(lambda v, line=line: v.bytes.endswith(line))
    tail = b"".join(lines)
    assert live.bytes == tail
    await late.until(lambda v: v.bytes == begin + tail)
    # The slow viewer took two lines and has no room for a third. The rest waits for this viewer only.
    await slow.until(lambda v: len(v.bytes) == logs.WINDOW)
    await slow.tell(ack=logs.WINDOW)
    await slow.until(lambda v: v.bytes == begin + tail)
    await paused.until(lambda v: v.told and v.told[-1]["stored"] == len(begin + tail))
    assert paused.bytes == b""
    await paused.tell(pause=False)
    await paused.until(lambda v: v.bytes == tail)
    # During the output only bytes were sent. The header with the new size follows.
    await live.until(lambda v: v.told[-1]["stored"] == len(begin + tail))
    went = [frame for _, frame, done in written if done]
    assert len(went) > len(lines), "nothing was handed out at once"
    assert websocket_protocol.binary_frame(lines[-1]) in went


async def test_gaps_and_large_amounts_reach_every_viewer(watch, job, run, written):
    viewers = [await watch() for _ in range(2)]
    for viewer in viewers:
        await viewer.tell(tail=0)
        await viewer.until(lambda v: v.told)
    await in_database_thread(lose, run, 100)
    await grow(run, b"after\n")
    flood = b"y" * (tails.MAX_FRAME_BYTES + 1)
    for viewer in viewers:
        await viewer.until(lambda v: v.bytes == b"after\n")
        assert [told["to"] for told in viewer.told if "gap" in told] == [100]
    await grow(run, flood)
    for viewer in viewers:
        await viewer.until(lambda v: v.bytes == b"after\n" + flood)


async def test_a_viewer_from_the_start_uses_what_another_one_has_read(watch, job, run, monkeypatch):
    monkeypatch.setattr(tails, "STRETCH_BYTES", 3000)
    monkeypatch.setattr(tails, "MAX_STRETCHES", 4)
    monkeypatch.setattr(tails, "RING_BYTES", 0)
    reads = []
    honest = tails.read
    monkeypatch.setattr(tails, "read", lambda *args: reads.append(args) or honest(*args))
    text = b"".join(b"%07d\n" % n for n in range(2000))
    for at in range(0, 8000, 1000):
        await in_database_thread(write, run, text[at : at + 1000])
    await in_database_thread(lose, run, 4000)
    await in_database_thread(write, run, text[12_000:])
    viewers = [await watch() for _ in range(4)]
    starts = (0, 0, 2999, 7990)
    for viewer, start in zip(viewers, starts, strict=True):
        await viewer.tell(**{"from": start})
        await viewer.until(lambda v, start=start: v.bytes == text[start:8000] + text[12_000:])
        assert [(told["at"], told["to"]) for told in viewer.told if "gap" in told] == [(8000, 12_000)]
    first = [start for _, start, _ in reads]
    # One read for each stretch and for the gap. Later viewers read only the stretches that were dropped since.
    assert first[:6] == [0, 3000, 6000, 8000, 12_000, 15_000] and len(reads) < 20
    assert len(tails._stretches) == 4


async def test_one_check_serves_all_sockets_of_a_person_and_ends_them_all(watch, cast, job, run, monkeypatch):
    asked = []
    honest = logs.LogSocket.recheck

    def still(self, user):
        asked.append(user.username)
        return honest(self, user)

    monkeypatch.setattr(logs.LogSocket, "recheck", still)
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.2)
    monkeypatch.setattr(shared_checks, "GOOD_FOR_S", 0.1)
    of_vera, of_bob = [await watch("vera") for _ in range(10)], await watch("bob")
    while asked.count("bob") < 5:
        await asyncio.sleep(0.05)
    assert asked.count("vera") < 30, "each socket asked for itself"
    await in_database_thread(lambda: Membership.objects.filter(user=cast.vera).delete())
    for viewer in of_vera:
        assert await viewer.until_closed() == 4404
    await of_bob.tell(tail=0)
    await of_bob.until(lambda v: v.told)


async def test_a_server_without_the_fast_paths_serves_the_same_bytes(watch, job, run, monkeypatch):
    monkeypatch.setattr(websocket_protocol, "direct_writer", lambda scope: None)
    viewer = await watch()
    await viewer.tell(tail=0)
    await viewer.until(lambda v: v.told)
    await grow(run, b"hello")
    await viewer.until(lambda v: v.bytes == b"hello")


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 100_000])
def test_a_frame_equals_that_of_the_websocket_library(size):
    message = Frame(Opcode.BINARY, b"z" * size)
    assert websocket_protocol.binary_frame(b"z" * size) == message.serialize(mask=False)


async def test_the_registry_is_empty_when_all_sockets_are_closed(watch, job, run):
    viewer = await watch()
    await viewer.tell(tail=0)
    await viewer.until(lambda v: v.told)
    await viewer.connection.close()
    async with asyncio.timeout(PATIENCE_S):
        while any(tails._tails.values()) or registry.of_this_loop()._watches:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("state", "takes"),
    [
        ({}, True),
        ({"_up_to_date": False}, False),  # the task of the socket is sending, and would be overtaken
        ({"_cursor": 9}, False),  # just acknowledged or resumed: the viewer must catch up first
        ({"_paused": True}, False),
        ({"_place": logs.LogPosition(tail=0)}, False),
        ({"_sent": logs.WINDOW - 2}, False),
        ({"_sent": logs.WINDOW - 2, "_acked": 1}, True),
        ({"_write": lambda frame: False}, False),
        ({"_write": None}, False),
    ],
)
async def test_a_shared_frame_is_taken_only_by_viewers_that_are_up_to_date(state, takes):
    socket = logs.LogSocket({"url_route": {"kwargs": {"job_id": "1"}}}, None, None)
    for name, value in ({"_up_to_date": True, "_cursor": 10, "_write": lambda frame: True} | state).items():
        setattr(socket, name, value)
    sent = socket._sent
    assert socket.offer(tails.Piece(10, 13, b"abc"), b"\x82\x03abc", b"") is takes
    assert (socket._cursor == 13, socket._sent - sent) == (takes, 3 * takes)
