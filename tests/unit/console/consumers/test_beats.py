"""A socket is never silent for long, so that silence means that its path is cut."""

from __future__ import annotations

import asyncio
import json
import time

from django.utils import timezone
from websockets.asyncio.client import connect

from console.auth import tokens
from console.consumers import routes
from console.live import beats
from console.runtime import web
from console.runtime.database_threads import in_database_thread

BEAT_S = beats.BEAT_S
# Scripts of people follow these, and know no beats. The server's pings find out which of them are gone.
OLD = ("/ws/jobs", "/ws/hosts")


def addresses(job, run):
    """Every address of routes.py, filled with the rows of this test. A new socket is in it without a change here."""
    values = {"job_id": job.pk, "host_id": run.host_id, "replica": run.replica.name, "run_id": run.pk}
    values["key"] = "0" * 32
    more = {"ws/live": "?at=/jobs/", f"ws/shells/{values['key']}": f"?run={run.pk}"}
    found = []
    for route in routes.websocket_urlpatterns:
        pattern = route.pattern.regex
        if not pattern.pattern:
            continue
        text = pattern.pattern.removeprefix("^/*").removesuffix("/?$")
        for name in pattern.groupindex:
            begin = text.index(f"(?P<{name}>")
            text = text[:begin] + str(values[name]) + text[text.index(")", begin) + 1 :]
        assert pattern.match(f"/{text}"), text
        if text != "ws/live" and not ("log" in text or "shell" in text):
            assert f"/{text}".startswith(OLD)
            continue
        found.append(f"/{text}{more.get(text, '')}")
    return found


def test_the_browser_waits_for_two_late_beats_and_ten_seconds_at_most():
    wire = routes.__file__.replace("console/consumers/routes.py", "static/wire.js")
    with open(wire) as script:
        (silent,) = [line for line in script if line.startswith("const SILENT_MS")]
    silent_s = int(silent.rpartition("= ")[2].rstrip(";\n")) / 1000
    assert 2 * BEAT_S < silent_s <= 9


async def test_every_socket_is_sent_beats_with_the_time(server, cast, job, run, shell, monkeypatch):
    monkeypatch.setattr(beats, "BEAT_S", 0.2)
    _, token = await in_database_thread(tokens.create, cast.bob, "test", timezone.now())
    headers = {"Authorization": f"Bearer {token}"}
    paths = addresses(job, run)
    assert len(paths) >= 3
    for path in paths:
        async with connect(server + path, additional_headers=headers) as client:
            heard = []
            async with asyncio.timeout(30):
                while len(heard) < 3:
                    message = await client.recv()
                    if isinstance(message, str) and message.startswith('{"beat"'):
                        heard.append(json.loads(message)["beat"])
            assert heard == sorted(heard) and abs(heard[-1] - time.time()) < 5, path
    async with asyncio.timeout(30):
        while beats.of_this_loop()._task is not None:
            await asyncio.sleep(0.02)


async def test_another_server_sends_beats_too(visit, job, monkeypatch):
    """Without direct writing of frames."""
    monkeypatch.setattr(beats, "BEAT_S", 0.1)
    page = await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0")
    await page.until(lambda v: len(v.beats) >= 2)
    await page.leave()


async def test_a_socket_that_has_ended_is_sent_no_beat(monkeypatch):
    monkeypatch.setattr(beats, "BEAT_S", 0.01)
    asked, here = [], beats.Beats()
    with here.sent_by(lambda frame: asked.append(frame) is not None):
        while len(asked) < 3:
            await asyncio.sleep(0.01)
    before = len(asked)
    await asyncio.sleep(0.1)
    assert len(asked) == before


async def test_all_sockets_get_the_same_frame(monkeypatch):
    """One frame for a tick, however many sockets there are."""
    monkeypatch.setattr(beats, "BEAT_S", 0.05)
    first, second, here = [], [], beats.Beats()
    with here.sent_by(first.append), here.sent_by(second.append):
        while len(second) < 5:
            await asyncio.sleep(0.01)
    # The first beat of each is its own: it is sent when the socket opens.
    assert all(one is other for one, other in zip(first[1:], second[1:], strict=True))


def test_a_client_that_is_gone_is_cut_off_within_twenty_seconds():
    config = web.config()
    assert 0 < config.ws_ping_interval + config.ws_ping_timeout <= 20
