"""What a host watches for the console: the GPUs that are kept out of use, how busy the host is, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from agents.hosts import gpu_quarantine, kept
from agents.links import host_load
from agents.links.link import Link

# How often the database is asked which GPUs the host should watch, if no hint says so earlier.
GPU_WATCH_S = 10.0
# The same of what the host is to remove. The hint of a removal (jobs/wake/hints.py) may be lost.
DISCARDS_S = 15.0
# How long a host that was asked to remove something may answer nothing. It removes one after the other.
SILENT_S = 3600.0
# Each returns whether the control plane should decide again.
_RECORDERS = {
    "gpus": gpu_quarantine.record_look,
    "evicted": gpu_quarantine.record_eviction,
    "load": host_load.record,
    "kept": kept.record,
    "discarded": kept.record_discarded,
}


class HostWatch:
    """Sends the frame `watch`, and records the answers. The work item of the host uses it; its thread only `begin`."""

    def __init__(self, host_id: int) -> None:
        self._host_id = host_id
        self._sent: gpu_quarantine.WatchedGpus | None = None  # on this link
        self._with_load = False
        self._looked_at = self._discards_at = 0.0
        # Asked for on this link and not answered: since when the host has answered nothing.
        self._removing: dict[tuple[str, str], float] = {}
        self._has_removed = False

    def begin(self) -> None:
        """There is a new link: nothing was sent on it."""
        self._sent, self._looked_at, self._discards_at = None, 0.0, 0.0
        self._removing = {}

    def look_soon(self) -> None:
        """Something has happened to a GPU of the host, or is to happen to what it keeps."""
        self._looked_at = self._discards_at = 0.0

    def send(self, link: Link, now: float) -> None:
        """Send which GPUs are kept out of use: the host looks at them until they are free. The first frame of a link
        also asks for the load of the host, and for what it keeps."""
        if now - self._looked_at < GPU_WATCH_S:
            return
        self._looked_at = now
        wanted, before = gpu_quarantine.watched_gpus(self._host_id), self._sent
        for uuid, named in wanted.evictions:
            link.send({"t": "evict", "gpu": uuid, "pids": named})
        if before is None:
            self._with_load = host_load.is_wanted(self._host_id)
        if before is None or (wanted.gpus, wanted.soon) != (before.gpus, before.soon):
            watch = {"gpus": wanted.gpus, "soon": wanted.soon, "load": self._with_load, "kept": True}
            link.send({"t": "watch", **watch})
        self._sent = wanted
        if now - self._discards_at >= DISCARDS_S:
            self._discards_at = now
            self._send_removals(link, now)

    def _send_removals(self, link: Link, now: float) -> None:
        """The host removes one after the other, and answers each once. Time counts from when the host was asked: a
        removal waits as long as the host is away. A host that answers nothing would hold up what comes after it."""
        if self._has_removed:
            self._has_removed, self._removing = False, dict.fromkeys(self._removing, now)
        silent = [each for each, since in self._removing.items() if now - since >= SILENT_S]
        if silent:
            kept.give_up(self._host_id, silent, timezone.now())
        wanted = kept.to_discard(self._host_id)
        for kind, key in wanted:
            if (kind, key) not in self._removing:
                link.send({"t": "discard", "kind": kind, "key": key})
        self._removing = {each: self._removing.get(each, now) for each in wanted}

    def record(self, message: Mapping[str, Any], token: int) -> bool:
        """Record what the host reported about itself. True if the control plane should decide again."""
        write = _RECORDERS[message["t"]]
        if message["t"] == "discarded":
            # An admin may ask for it again.
            self._removing.pop((str(message.get("kind")), str(message.get("key"))), None)
            self._has_removed = True
        changed = write(self._host_id, token, message, timezone.now())
        if changed:
            self.look_soon()
        return changed
