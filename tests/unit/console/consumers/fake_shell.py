"""A shell on a host that is no host: what it prints and what was typed are in the hands of the test."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from console.consumers import shells as consumer
from jobs.models import ShellSession


class Output(queue.Queue):
    """The output of a program. `ring` is called when there is new output."""

    def __init__(self):
        super().__init__()
        self.ring = lambda: None

    def put(self, data):
        super().put(data)
        self.ring()


class FakeShell:
    """A fake program on the host: it prints `out`, and its input is collected in `typed`."""

    def __init__(self):
        self.out = Output()
        self.typed = b""
        self.sizes = []
        self.requests = []
        self.read_bytes = 0
        self.closed = threading.Event()
        self.takes = threading.Event()
        self.takes.set()
        self.flood, self.show = False, None
        # How often output was read, and which of these reads fail because the connection is busy.
        self.asked = {"read": 0, "write": 0}
        self.busy = lambda what, number: False
        self.problem = ""
        self.answer = {
            "ok": True,
            "at": 0,
            "end": 0,
            "taken": 0,
            "lost": False,
            "modes": "",
            "size": [80, 24],
        }
        self.beats = 0

    def watch(self, arrived, show=None):
        loop, self.show = asyncio.get_running_loop(), show
        self.out.ring = lambda: loop.call_soon_threadsafe(arrived)

    def is_busy(self, what):
        self.asked[what] += 1
        return self.busy(what, self.asked[what])

    def read(self):
        if self.is_busy("read"):
            raise BlockingIOError
        try:
            data = b"x" * 60000 if self.flood else self.out.get_nowait()
        except queue.Empty:
            return b""
        self.read_bytes += len(data)
        return data or None

    def write_now(self, data):
        if not self.takes.is_set() or self.is_busy("write"):
            return False
        self.write(data)
        return True

    def write(self, data):
        assert self.takes.wait(30)
        self.typed += data
        self.out.put(b"echo:" + data)

    def beat(self):
        self.beats += 1

    def end(self, reason):
        self.out.put({"end": {"status": None, "signal": 1, "reason": reason}})
        self.out.put(b"")

    def resize(self, cols, rows):
        self.sizes.append((cols, rows))
        self.out.put(b"resized")

    def close(self):
        self.closed.set()
        self.flood = False
        self.out.put(b"")


@pytest.fixture
def shell(monkeypatch):
    fake = FakeShell()

    def opening(run, key, request):
        fake.sizes.append((request["cols"], request["rows"]))
        fake.requests.append(request)
        if len(fake.requests) > 1:
            # What the connection before has left is not this one's.
            fake.out.queue.clear()
        return fake

    monkeypatch.setattr(consumer, "_open", opening)
    return fake


@pytest.fixture
def opened(visit, run, shell):
    async def open_as(who="bob", **options):
        page = await visit(f"/ws/shell/{run.pk}", who, **options)
        await page.tell(resize=[100, 30])
        await page.until(lambda v: {"ready": True} in v.told)
        return page

    return open_as


def end_of(run):
    return ShellSession.objects.filter(run=run).values_list("user_name", "close_reason", "address").get()
