"""What the page of the job shows of a reduction: lines in the file of reported metrics, a few a minute."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Dict

VARIABLE = "TRAINYARD_METRICS"
EVERY_S = 10.0
MB = 1e6


class Report:
    """Bytes since the beginning, and which share of each interval was spent so. Nothing is reported while nothing
    moves."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._path = os.environ.get(VARIABLE, "")
        self._due = 0.0
        self._at = time.monotonic()
        self._busy_s = 0.0
        self._moved = 0
        self._ended: Dict[str, int] = {"received": 0, "sent": 0}

    def add(self, received: int, sent: int) -> None:
        """Bytes of a connection that is over."""
        self._ended["received"] += received
        self._ended["sent"] += sent

    def is_due(self, now: float) -> bool:
        if now < self._due or not self._path:
            return False
        self._due = now + EVERY_S
        return True

    def say(self, now: float, received: int, sent: int, busy_s: float, name: str) -> None:
        received += self._ended["received"]
        sent += self._ended["sent"]
        passed, busy = now - self._at, busy_s - self._busy_s
        self._at, self._busy_s = now, busy_s
        moved, self._moved = received + sent - self._moved, received + sent
        if not moved or passed <= 0 or not self._path:
            return
        share = 100.0 * min(1.0, max(0.0, busy / passed))
        line = {
            "reduction/%s_sent_mb" % self._role: round(sent / MB, 3),
            "reduction/%s_received_mb" % self._role: round(received / MB, 3),
            "reduction/%s" % name: round(100.0 - share if "idle" in name else share, 1),
        }
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, json.dumps(line).encode() + b"\n")
            finally:
                os.close(fd)
