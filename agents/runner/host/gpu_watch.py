"""Watches the GPUs that the console keeps out of use until they are proved free."""

from __future__ import annotations

import time
from typing import Any, List, Set

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.home import is_gpu
from agents.runner.host.gpus import GPU_LOOK_S, evict, report_on_gpus
from agents.runner.host.load import HostLoad
from agents.runner.outbox import Outbox
from agents.runner.runs.known import Runs
from agents.runner.wire import Message


def gpu_names(found: Any) -> List[str]:
    if not isinstance(found, list) or not all(map(is_gpu, found)):
        raise ValueError("gpus must be a list of GPU UUIDs")
    return list(found[:256])


class GpuWatch:
    """Handles the frames `watch` and `evict`."""

    def __init__(self, runs: Runs, out: Outbox, background: BackgroundTasks, load: HostLoad) -> None:
        self.runs, self.out, self.background, self.load = runs, out, background, load
        self.watched: List[str] = []
        self.seen_free: Set[str] = set()
        self.reported: Any = None
        self.look_at = 0.0

    def tick(self, now: float) -> None:
        if self.watched and now >= self.look_at:
            self.look()

    def on_watch(self, message: Message, payload: bytes) -> None:
        """Look at these GPUs every few seconds. A GPU is free after two free looks, or after one if it is in `soon`.

        `load`: whether the console wants the load of the host, too."""
        self.load.asked = message.get("load") is True
        self.watched = gpu_names(message["gpus"])
        self.seen_free &= set(self.watched)
        self.seen_free |= set(gpu_names(message.get("soon") or []))
        self.reported = None
        self.look()

    def look(self) -> None:
        gpus = list(self.watched)
        self.look_at = time.monotonic() + GPU_LOOK_S
        if gpus:
            locks = {uuid: self.runs.require_home().gpu_lock(uuid) for uuid in gpus}
            self.background.start("gpus", lambda: report_on_gpus(locks), self.report)

    def report(self, report: Any) -> None:
        if report is None or set(report["gpus"]) != set(self.watched):
            return  # it hung, or is about GPUs that are no longer watched: the next look is due anyway
        free = {u for u, held in report["gpus"].items() if not held and not report["error"]}
        report["free"], self.seen_free = sorted(free & self.seen_free), free
        # Sent again only when a process came or went: that ages grow is no news.
        news = [
            report["error"],
            sorted((u, sorted(h["pid"] for h in held)) for u, held in report["gpus"].items()),
        ]
        if news != self.reported or report["free"]:
            self.reported = news
            self.out.send(dict(report, t="gpus"))

    def on_evict(self, message: Message, payload: bytes) -> None:
        """A person wants these processes ended: exactly these, and only if they are on that GPU now."""
        [gpu] = gpu_names([message["gpu"]])
        pids = {(int(pid), int(ticks)) for pid, ticks in message["pids"]}

        def act() -> List[str]:
            return evict(gpu, pids)

        def done(texts: Any) -> None:
            self.out.send({"t": "evicted", "gpu": gpu, "words": texts or ["it took too long"]})
            self.look_at = 0.0

        if not self.background.start("evict", act, done):
            raise ValueError("another eviction is going on")
