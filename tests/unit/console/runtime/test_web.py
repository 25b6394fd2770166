"""The web process: threads that render pages hold up its event loop for moments only."""

from __future__ import annotations

import gc
import socket
import sys

import uvicorn
from django.template import engines

from console.runtime import memory, web
from console.views.studies import warm_up


def test_threads_and_the_garbage_collector_hold_up_the_event_loop_for_moments_only(monkeypatch):
    """Seen in a crowd of shells: with 5 ms for each thread in turn, a ping waited for 34 ms at p95, now for 2 ms."""
    seen = {}

    def run(server, sockets):
        seen.update(interval=sys.getswitchinterval(), frozen=gc.get_freeze_count(), sockets=sockets)
        seen.update(compiled=set(loader.get_template_cache))

    [loader] = engines["django"].engine.template_loaders
    loader.reset()
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(memory, "keep_small", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # what other tests have left is not this test's subject
    for thread in (
        "agents.clock_keeper.ClockKeeper",
        "console.runtime.schema_watch.SchemaWatch",
        "console.auth.shell_guard.ShellGuard",
    ):
        monkeypatch.setattr(f"{thread}.start", lambda self: None)
    before = sys.getswitchinterval()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            web.main(["--fd", str(listener.detach())])
        finally:
            sys.setswitchinterval(before)
            gc.unfreeze()
    assert seen["interval"] <= 0.001
    assert seen["frozen"] > 100_000, "all that was loaded"
    assert set(warm_up.names()) <= seen["compiled"]
    seen["sockets"][0].close()
