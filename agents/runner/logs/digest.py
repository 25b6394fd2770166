"""The digest of a log, over blocks: the state of a SHA-256 cannot be handed to another process."""

from __future__ import annotations

import hashlib
from typing import List

DIGEST_BLOCK = 8 * 1024 * 1024


def digest_of_blocks(blocks: List[bytes]) -> str:
    """The digest of a log from the SHA-256 of each of its 8 MiB blocks (the last one may be shorter).

    Blocks, because the state of a SHA-256 cannot be handed to another process, but a list of finished blocks can.
    """
    if not blocks:
        return "sha256:" + hashlib.sha256().hexdigest()
    if len(blocks) == 1:
        return "sha256:" + blocks[0].hex()
    return "blocks8m:" + hashlib.sha256(b"".join(blocks)).hexdigest()


class LogDigest:
    """The digest of a log whose bytes come in order, in pieces of any size. `blocks` are those finished earlier."""

    def __init__(self, blocks: List[bytes] | None = None) -> None:
        self.blocks = list(blocks or [])
        self.size = len(self.blocks) * DIGEST_BLOCK
        self._open = hashlib.sha256()

    def update(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = DIGEST_BLOCK - self.size % DIGEST_BLOCK
            piece = view[:room]
            self._open.update(piece)
            self.size += len(piece)
            view = view[room:]
            if len(piece) == room:
                self.blocks.append(self._open.digest())
                self._open = hashlib.sha256()

    def value(self) -> str:
        partial = [self._open.digest()] if self.size % DIGEST_BLOCK else []
        return digest_of_blocks(self.blocks + partial)


def log_digest(data: bytes) -> str:
    """The digest of a whole log in memory."""
    digest = LogDigest()
    digest.update(data)
    return digest.value()
