"""A short piece of output that comes alone is shown at once; all output comes in its order, whichever way it takes."""

from __future__ import annotations

import asyncio
import socket
import threading

import paramiko
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from paramiko.common import MSG_CHANNEL_DATA
from paramiko.packet import Packetizer

from agents.runner.shells.frames import BEAT, OUT, TOOK, frame
from agents.ssh.packets import CIPHERS_FIRST, DATA, LoopReader, PacketReader
from agents.ssh.pty import Shell, ShellChannel
from agents.ssh.sockets import QuickAckSocket

KEY, NONCE = b"k" * 16, b"abcd" + bytes(8)
WINDOW = 1 << 20


class Connection:
    """What a shell's channel needs of its connection; the host's end of it is a packetizer of paramiko."""

    misbehaviour = ""
    remote_cipher, in_kex = CIPHERS_FIRST[0], False

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.socket = QuickAckSocket(socket.create_connection(listener.getsockname()), 12.0)
            self.hosts_socket = listener.accept()[0]
        self.packetizer, self.host = PacketReader(self.socket), Packetizer(self.hosts_socket)
        self.packetizer.is_open = lambda number: number == 0
        for each in (self.packetizer, self.host):
            each.set_outbound_cipher(AESGCM(KEY), 16, None, 16, None, aead=True, iv_out=NONCE)
            each.set_inbound_cipher(AESGCM(KEY), 16, None, 16, None, aead=True, iv_in=NONCE)
        self.clear_to_send, self.clear_to_send_lock = threading.Event(), threading.Lock()
        self.clear_to_send.set()
        self.channel = paramiko.Channel(0)
        self.channel.transport = self
        self.channel._set_window(WINDOW, 32768)
        self.channel._set_remote_channel(0, WINDOW, 32768)
        self.handed_over = []

    def _sanitize_packet_size(self, size):
        return size

    def read_on_loop(self, channel, on_output, show=None):
        self.reader = LoopReader(self, self.socket, channel, on_output, show)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self.reader

    def serve(self):
        """What paramiko's thread does with what the loop hands over."""
        while True:
            try:
                kind, message = self.packetizer.read_message()
            except (EOFError, OSError, InvalidTag, paramiko.SSHException):
                return
            if kind == MSG_CHANNEL_DATA:
                self.channel._feed(message)
            else:
                self.handed_over.append(kind)

    def without_waiting(self, act):
        return act()

    def _send_user_message(self, message):
        """A window for the host, which none of these tests waits for."""

    async def end(self):
        self.close()
        await asyncio.to_thread(self.thread.join, 30)

    def close(self):
        self.hosts_socket.close()
        self.reader.close()
        self.socket.close()

    def send(self, *payloads):
        """Output of the shell in packets that arrive together."""
        honest, packets = self.host.write_all, []
        self.host.write_all = packets.append
        for payload in payloads:
            message = DATA.pack(MSG_CHANNEL_DATA, 0, len(payload)) + payload
            self.host.send_message(paramiko.Message(message))
        self.host.write_all = honest
        self.hosts_socket.sendall(b"".join(packets))


class Screen:
    """A terminal that takes what it is shown, unless it is `busy`, and reads the rest."""

    def __init__(self, connection):
        self.shell = Shell(ShellChannel(connection, connection.channel, b""), {"at": 0, "taken": 5})
        self.seen, self.shown, self.busy, self.events, self.ended = b"", 0, False, [], False
        self.changed = asyncio.Event()
        self.shell.watch(self.read, self.show)

    def show(self, data):
        if not self.busy:
            self.seen += data
            self.shown += 1
            self.changed.set()
        return not self.busy

    def read(self):
        while item := self.shell.read():
            if isinstance(item, dict):
                self.events.append(item)
            else:
                self.seen += item
        self.ended = item is None
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def connection():
    connection = Connection()
    yield connection
    await connection.end()


async def test_an_echo_is_shown_at_once(connection):
    screen = Screen(connection)
    for number, key in enumerate(b"echo"):
        connection.send(frame(OUT, number, bytes((key,))))
        await screen.until(lambda until=number + 1: len(screen.seen) == until)
    assert (screen.seen, screen.shown) == (b"echo", 4)


async def test_nothing_is_shown_before_what_waits(connection):
    """The second echo comes whole, but the terminal has not taken the first one yet."""
    screen = Screen(connection)
    screen.busy = True
    screen.shell.read = lambda: b""
    connection.send(frame(OUT, 0, b"first"))
    async with asyncio.timeout(30):
        while not connection.reader.kept:
            await asyncio.sleep(0.01)
    screen.busy = False
    connection.send(frame(OUT, 5, b"second"))
    async with asyncio.timeout(30):
        while not len(connection.channel.in_buffer):
            await asyncio.sleep(0.01)
    assert (screen.seen, screen.shown) == (b"", 0)
    del screen.shell.read
    screen.read()
    assert screen.seen == b"firstsecond"


async def test_an_echo_in_the_wrong_place_ends_the_shell(connection):
    screen = Screen(connection)
    connection.send(frame(OUT, 7, b"x"))
    await screen.until(lambda: screen.ended)
    assert screen.seen == b"" and "output at 7, where 0 was due" in screen.shell.problem


async def test_a_packet_that_was_changed_ends_the_shell(connection):
    screen = Screen(connection)
    honest = connection.host.write_all
    connection.host.write_all = lambda packet: honest(packet[:-1] + bytes((packet[-1] ^ 1,)))
    connection.host.send_message(paramiko.Message(DATA.pack(MSG_CHANNEL_DATA, 0, 14) + frame(OUT, 0, b"x")))
    async with asyncio.timeout(30):
        while not connection.reader._ended:
            await asyncio.sleep(0.01)
    assert (screen.seen, screen.shown) == (b"", 0)


async def test_a_packet_of_padding_only_ends_the_shell(connection):
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    screen = Screen(connection)
    inner = bytes((31,)) + bytes(31)
    head = len(inner).to_bytes(4, "big")
    connection.hosts_socket.sendall(head + AESGCM(KEY).encrypt(NONCE, inner, head))
    async with asyncio.timeout(5):
        while not (connection.reader._ended or failed):
            await asyncio.sleep(0.01)
    assert failed == [] and connection.reader._ended
    assert (screen.seen, screen.shown) == (b"", 0)


async def test_output_that_a_viewer_fails_to_show_is_kept(connection):
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))

    class Faulty(Screen):
        def show(self, data):
            raise RuntimeError("no screen")

    screen = Faulty(connection)
    connection.send(frame(OUT, 0, b"x"))
    async with asyncio.timeout(5):
        while not (screen.seen or failed):
            await asyncio.sleep(0.01)
    assert failed == [] and screen.seen == b"x"


async def test_the_host_is_given_a_new_window_for_echoes_too(connection):
    """What was shown counts like what was read: at the threshold paramiko reports the window."""
    reported = []
    connection._send_user_message = reported.append
    connection.channel._set_window(1000, 32768)
    screen = Screen(connection)
    for number in range(60):
        connection.send(frame(OUT, number * 10, b"0123456789"))
        await screen.until(lambda until=10 * number + 10: len(screen.seen) == until)
    assert screen.shown > 40 and len(reported) > 10


STEPS = st.lists(
    st.tuples(
        st.booleans(),  # whether the terminal is busy
        st.lists(
            st.one_of(st.binary(min_size=1, max_size=3000), st.sampled_from([TOOK, BEAT])),
            min_size=1, max_size=4,
        ),
        st.integers(1, 4000),  # where the frames are cut into packets
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=40)
@given(STEPS)
def test_all_output_comes_once_and_in_its_order(steps):
    asyncio.run(all_comes(steps))


async def all_comes(steps):
    connection = Connection()
    screen = Screen(connection)
    sent, took = b"", 0
    for busy, items, cut in steps:
        screen.busy = busy
        frames = b""
        for item in items:
            if isinstance(item, int):
                frames += frame(item, took if item == TOOK else 0)
                took += item == TOOK and took < 5
            else:
                frames += frame(OUT, len(sent), item)
                sent += item
        connection.send(*(frames[at : at + cut] for at in range(0, len(frames), cut)))
        expected = len(sent)
        await screen.until(lambda until=expected: len(screen.seen) >= until)
    await connection.end()
    assert screen.seen == sent
