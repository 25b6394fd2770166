"""Packets that are sealed and opened in few steps are those that paramiko makes and reads, in any order of the two."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from paramiko import Message
from paramiko.packet import Packetizer

from agents.ssh import gcm_packets
from agents.ssh.gcm_packets import Batch, GcmPackets, Piece

KEY, NONCE = b"k" * 16, b"abcd" + bytes(7) + b"\xfe"
PAYLOADS = st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=200)), min_size=1, max_size=8)
PIECES = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(
            st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=400)), min_size=1, max_size=5
        ),
    ),
    min_size=1,
    max_size=6,
)


class Ends:
    """Two ends of a connection, whose packets are encrypted."""

    def __init__(self, aead=True):
        self.sockets = socket.socketpair()
        for each in self.sockets:
            each.settimeout(5)
        self.ours, self.theirs = GcmPackets(self.sockets[0]), Packetizer(self.sockets[1])
        if aead:
            for each in (self.ours, self.theirs):
                each.set_outbound_cipher(AESGCM(KEY), 16, None, 16, None, aead=True, iv_out=NONCE)
                each.set_inbound_cipher(AESGCM(KEY), 16, None, 16, None, aead=True, iv_in=NONCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.sockets:
            each.close()

    def send(self, payload):
        return self.ours.send_at_once(payload, self.sockets[0].fileno())

    def arrived(self):
        return self.sockets[0].recv(1 << 16)


def pieces(*texts):
    return Batch([Piece(head, memoryview(data)) for head, data in texts])


def test_pieces_that_follow_each_other_are_written_together(monkeypatch):
    with Ends() as ends:
        written, honest = [], socket.socket.send
        monkeypatch.setattr(socket.socket, "send", lambda self, data: written.append(1) or honest(self, data))
        ends.ours.send_message(pieces((b"h", bytes(500)), (b"i", bytes(700)), (b"j", b"")))
        assert len(written) == 1
        assert [read(ends.theirs)[0] for _ in range(3)] == [b"h" + bytes(500), b"i" + bytes(700), b"j"]


def read(packetizer):
    kind, message = packetizer.read_message()
    return bytes((kind,)) + message.asbytes(), message.seqno


@settings(max_examples=60)
@given(PAYLOADS)
def test_paramiko_reads_what_is_sent_in_either_way(messages):
    with Ends() as ends:
        for number, (at_once, payload) in enumerate(messages):
            if at_once:
                assert ends.send(payload)
            else:
                ends.ours.send_message(Message(payload))
            assert read(ends.theirs) == (payload, number)


@settings(max_examples=60)
@given(PIECES, st.booleans())
def test_paramiko_reads_pieces_between_other_messages_and_with_any_cipher(messages, aead):
    with Ends(aead) as ends:
        number = 0
        for together, texts in messages:
            if together:
                ends.ours.send_message(pieces(*texts))
            for head, data in texts:
                if not together:
                    ends.ours.send_message(Message(head + data))
                assert read(ends.theirs) == (head + data, number)
                number += 1


def test_the_rest_of_a_piece_follows_when_the_socket_has_room(monkeypatch):
    with Ends() as ends:
        honest = socket.socket.send
        monkeypatch.setattr(socket.socket, "send", lambda self, data: honest(self, data[:7]))
        ends.ours.send_message(pieces((b"head ", b"one piece"), (b"head ", b"another, which is longer")))
        ends.ours.send_message(pieces((b"head ", b"x")))
        assert [read(ends.theirs)[0] for _ in range(3)] == [
            b"head one piece", b"head another, which is longer", b"head x",
        ]  # fmt: skip


def test_pieces_near_a_limit_ask_for_new_keys():
    with Ends() as ends:
        ends.ours.REKEY_BYTES = 5000
        for _ in range(5):
            ends.ours.send_message(pieces((b"h", bytes(500)), (b"i", bytes(500))))
            assert [read(ends.theirs)[0] for _ in range(2)] == [b"h" + bytes(500), b"i" + bytes(500)]
        assert ends.ours.need_rekey()


@settings(max_examples=60)
@given(PAYLOADS)
def test_what_paramiko_sends_is_opened_in_either_way(messages):
    with Ends() as ends:
        for number, (at_once, payload) in enumerate(messages):
            ends.theirs.send_message(Message(payload))
            if at_once:
                packet = ends.arrived()
                assert ends.ours.may_open(len(packet))
                assert ends.ours.open_packet(packet) == (payload, number)
            else:
                assert read(ends.ours) == (payload, number)


def test_a_packet_that_was_changed_is_not_opened():
    with Ends() as ends:
        ends.theirs.send_message(Message(b"hello"))
        packet = ends.arrived()
        for place in range(len(packet)):
            with pytest.raises(InvalidTag):
                ends.ours.open_packet(packet[:place] + bytes((packet[place] ^ 1,)) + packet[place + 1 :])
        assert ends.ours.open_packet(packet) == (b"hello", 0)


def test_a_socket_without_room_gets_nothing_and_spoils_nothing(monkeypatch):
    with Ends() as ends:

        def full(fd, data):
            raise BlockingIOError

        with monkeypatch.context() as patch:
            patch.setattr(gcm_packets.os, "write", full)
            assert not ends.send(b"lost")
        assert ends.send(b"kept") and read(ends.theirs) == (b"kept", 0)


def test_the_rest_of_a_packet_follows_before_anything_else(monkeypatch):
    with Ends() as ends:
        honest = os.write
        with monkeypatch.context() as patch:
            patch.setattr(gcm_packets.os, "write", lambda fd, data: honest(fd, data[:7]))
            assert ends.send(b"in two pieces")
        assert ends.send(b"next")
        assert [read(ends.theirs)[0] for _ in range(2)] == [b"in two pieces", b"next"]


@pytest.mark.parametrize("limit", ["REKEY_BYTES", "REKEY_PACKETS"])
def test_new_keys_are_asked_for_as_paramiko_does(limit):
    """Near the limit paramiko sends and reads: it asks for new keys."""
    with Ends() as ends:
        setattr(ends.ours, limit, 3 if limit == "REKEY_PACKETS" else 1200)
        sent = [ends.send(b"x") for _ in range(10)]
        assert sent[0] and not sent[-1]
        ends.theirs.send_message(Message(b"y" * 1200))
        size = len(ends.sockets[0].recv(1 << 16, socket.MSG_PEEK))
        assert ends.ours.may_open(size) is (limit == "REKEY_PACKETS")
        for _ in range(3):
            ends.ours.send_message(Message(b"x" * 500))
        assert ends.ours.need_rekey() and not ends.send(b"x") and not ends.ours.may_open(size)


def test_other_ciphers_and_compression_are_left_to_paramiko():
    with Ends(aead=False) as ends:
        assert not ends.send(b"x") and not ends.ours.may_open(100)
    with Ends() as ends:
        ends.ours.set_outbound_compressor(bytes)
        ends.ours.set_inbound_compressor(bytes)
        assert not ends.send(b"x") and not ends.ours.may_open(100)


def test_nothing_waits_for_another_thread_that_sends():
    taken, leave = threading.Event(), threading.Event()
    with Ends() as ends:

        def hold():
            with ends.ours._Packetizer__write_lock:
                taken.set()
                leave.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait(30)
        assert not ends.send(b"x")
        leave.set()
        thread.join(30)
        assert ends.send(b"x")
