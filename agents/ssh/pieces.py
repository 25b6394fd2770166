"""What has come on a channel and was not read yet, in the pieces that came.

paramiko keeps it in one array. Each read copies what it takes twice and moves the rest to the front, up to a whole
window, and no other thread of the process runs meanwhile: of a large file that took more time than its digest.
"""

from __future__ import annotations

from collections import deque

from paramiko.buffered_pipe import BufferedPipe

# A shorter piece takes the next one up: bytes that come one by one must not need many times their own memory.
SHORT = 4096


class Pieces:
    """Bytes in their order: added at the end, taken from the front."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._pieces and len(self._pieces[-1]) < SHORT:
            self._pieces[-1] += data
        else:
            self._pieces.append(data)

    def first(self, most: int) -> bytes:
        taken, left = [], most
        for piece in self._pieces:
            taken.append(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
        return b"".join(taken)

    def __delitem__(self, part: slice) -> None:
        """Drop the first ones: `del pieces[:n]`."""
        left = self._size if part.stop is None else min(part.stop, self._size)
        self._size -= left
        while left > 0:
            piece = self._pieces.popleft()
            if len(piece) > left:
                self._pieces.appendleft(piece[left:])
            left -= len(piece)


class PiecesPipe(BufferedPipe):  # type: ignore[type-arg]  # it takes none at run time
    """paramiko's pipe, with its locks and its times, over pieces."""

    _buffer: Pieces

    def __init__(self) -> None:
        super().__init__()
        self._buffer = Pieces()

    def _buffer_frombytes(self, data: bytes) -> None:
        self._buffer.add(data)

    def _buffer_tobytes(self, limit: int | None = None) -> bytes:
        return self._buffer.first(len(self._buffer) if limit is None else limit)
