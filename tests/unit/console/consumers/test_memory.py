"""A socket that has ended is forgotten: nothing keeps what it sent, or what its shell printed."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from console.consumers import shared_checks, socket_lifecycle
from console.consumers.live_pages import JobSocket
from console.consumers.logs import LogSocket
from console.consumers.shells import ShellSocket


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (JobSocket, "/ws/jobs/{job}"),
        (LogSocket, "/ws/jobs/{job}/log/workerpool0-0"),
        (ShellSocket, "/ws/shell/{run}"),
    ],
)
async def test_a_socket_that_has_ended_is_forgotten(visit, job, run, shell, monkeypatch, kind, path):
    """And so are the answers to permission checks that sockets shared: they may hold a socket."""
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    monkeypatch.setattr(shared_checks, "GOOD_FOR_S", 0.2)
    known, make = [], kind.__init__

    def remember(self, *arguments):
        make(self, *arguments)
        known.append(weakref.ref(self))

    monkeypatch.setattr(kind, "__init__", remember)
    visitor = await visit(path.format(job=job.pk, run=run.pk), "root")
    await visitor.tell(**({"resize": [80, 24]} if kind is ShellSocket else {"tail": 0}))
    await asyncio.sleep(0.3)  # some checks
    await visitor.leave()
    del visitor
    for _ in range(50):
        await asyncio.sleep(0.1)
        gc.collect()
        if known[0]() is None and not shared_checks._asked[asyncio.get_running_loop()]:
            break
    assert len(known) == 1 and known[0]() is None, gc.get_referrers(known[0]())
    assert not shared_checks._asked[asyncio.get_running_loop()]
