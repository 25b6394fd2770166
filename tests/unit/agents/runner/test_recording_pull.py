"""Pieces of recordings leave serve one at a time, so that its logs and facts do not wait for all of them."""

from __future__ import annotations

import os
import select
from types import SimpleNamespace

import pytest

from agents.runner.outbox import Outbox
from agents.runner.runs.known import Run
from agents.runner.shells.recording import path_of
from agents.runner.shells.recording_pull import MAX_WAITING, PIECE_BYTES, RecordingPull
from agents.runner.wire import Decoder

SHELLS = ["s1", "s2", "s3"]


class Pulls:
    """The recordings of three shells that print, and what leaves of them."""

    def __init__(self, directory, content):
        run = Run("r1", str(directory), fresh=False)
        self.runs = SimpleNamespace(known=lambda message: run, by_name={"r1": run})
        self.read, write = os.pipe()
        os.set_blocking(write, False)
        self.out, self.decoder = Outbox(write), Decoder()
        self.pull = RecordingPull(self.runs, self.out)
        for shell in SHELLS:
            path = path_of(run.directory, shell)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)

    def ask(self, shell, start=0):
        self.pull.on_pull({"t": "cast_pull", "run": "r1", "shell": shell, "from": start}, b"")

    def left(self):
        """The frames that leave now."""
        found = []
        while self.out.waiting():
            self.out.flush()
            while select.select([self.read], [], [], 0)[0]:
                frames = self.decoder.feed(os.read(self.read, 1 << 16))
                found += [(message["shell"], message["from"]) for message, _ in frames]
        return found

    def close(self):
        os.close(self.read)
        os.close(self.out.fd)


@pytest.fixture
def pulls(tmp_path):
    made = Pulls(tmp_path, os.urandom(PIECE_BYTES))
    yield made
    made.close()


def test_each_turn_reads_one_piece(pulls):
    for shell in SHELLS:
        pulls.ask(shell)
    assert not pulls.out.waiting()
    for shell in SHELLS:
        assert pulls.pull.is_due()
        pulls.pull.step()
        assert pulls.left() == [(shell, 0)]
    assert not pulls.pull.is_due()
    pulls.pull.step()
    assert not pulls.out.waiting()


def test_what_is_asked_again_is_sent_once(pulls):
    pulls.ask("s1")
    pulls.ask("s1", 1000)
    pulls.pull.step()
    pulls.pull.step()
    assert pulls.left() == [("s1", 1000)]


def test_no_piece_is_read_while_the_console_takes_none(pulls):
    for shell in SHELLS:
        pulls.ask(shell)
    while pulls.pull.is_due():
        pulls.pull.step()
    assert MAX_WAITING <= pulls.out.bulk_bytes < MAX_WAITING + 2 * PIECE_BYTES
    assert pulls.left() == [("s1", 0), ("s2", 0)]
    assert pulls.pull.is_due()


def test_nothing_is_sent_of_a_run_that_was_forgotten_meanwhile(pulls):
    pulls.ask("s1")
    pulls.runs.by_name.clear()
    pulls.pull.step()
    assert not pulls.out.waiting() and not pulls.pull.is_due()
