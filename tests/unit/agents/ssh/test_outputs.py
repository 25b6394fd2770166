"""Files go to the output directories of a host, over a real sshd."""

from __future__ import annotations

import hashlib
import os
import random

from agents.ssh import peer_limits
from agents.ssh.outputs import converse
from tests.unit.agents.conftest import target

BLOCK = random.Random(7).randbytes(1 << 20)  # noqa: S311
BLOCKS = 9


def test_a_large_checkpoint_arrives_whole(machine, key, monkeypatch):
    """sshd sends a window for each piece. A file of more than 200 MB never arrived: the connection was cut for that."""
    monkeypatch.setattr(peer_limits, "HOUSEKEEPING_RATE", (50, 0.1))
    sha256 = hashlib.sha256(BLOCK * BLOCKS).hexdigest()
    deployment = f"t-outputs-{os.urandom(4).hex()}"
    conversation = converse(target(machine), key, {"deployment": deployment, "key": "job"})
    try:
        state = conversation.write("bucket/checkpoint", BLOCKS << 20, sha256, [BLOCK] * BLOCKS)
        assert state.size == BLOCKS << 20
        assert conversation.same("bucket/checkpoint", BLOCKS << 20, sha256) == state
        conversation.drop()
    finally:
        conversation.close()
