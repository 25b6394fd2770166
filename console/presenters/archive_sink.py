"""Archives that are made while they are sent."""

from __future__ import annotations


class ArchiveSink:
    """What an archive has written and nobody has taken yet. It has no `seek`, so nothing written is changed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)
