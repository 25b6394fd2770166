"""The search for leaked secrets finds one in each place, in each form, and nothing where there is none."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import urllib.parse
from types import SimpleNamespace

import pytest

from tests.harness import leaks
from tests.harness.services import Redis

FORMS = {
    "plain": str,
    "JSON": json.dumps,
    "an address": lambda value: urllib.parse.quote(value, safe=""),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 behind a name": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "base64 behind a letter": lambda value: base64.b64encode(f"u{value}".encode()).decode(),
    "an escaped frame": lambda value: repr(json.dumps(value)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_canary_is_found_in_each_form(form):
    value, other = leaks.canary("inline"), leaks.canary("stored")
    places = {"a page": f"<p>{FORMS[form](value)}</p>", "a frame": "nothing", "bytes": b"\xff\0"}
    assert leaks.found(places, {"inline": value, "stored": other}) == [("inline", "a page")]


def test_files_and_command_lines_are_searched(tmp_path, monkeypatch):
    values = {name: leaks.canary(name) for name in ("file", "log", "argument", "output", "table", "broker")}
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "note").write_text(values["file"])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "segment").write_text(values["log"])
    output = tmp_path / "output.log"
    output.write_text(values["output"])
    monkeypatch.setattr(leaks.observers, "database_text", lambda product: values["table"].encode())
    monkeypatch.setattr(leaks.observers, "broker_text", lambda product: values["broker"].encode())
    product = SimpleNamespace(data=tmp_path, output=output)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    held = subprocess.Popen([sys.executable, "-c", "input('here\\n')", values["argument"]], **pipes)
    try:
        # A program that is just being loaded has no command line for a moment.
        assert held.stdout.readline() == b"here\n"
        hits = leaks.found(leaks.places_of(product), values)
    finally:
        held.communicate(b"\n")
    assert hits == [
        ("argument", f"the command line of {held.pid}"),
        ("broker", "the broker"),
        ("file", "the file keys/note"),
        ("output", "the file output.log"),
        ("output", "the output of processes"),
        ("table", "the tables"),
    ]


def test_files_of_hosts_are_searched(monkeypatch):
    value = leaks.canary("inline")

    def on_host(host, needles):
        return [
            (name, "/home/gpu/.trainyard/x") for name, text in needles.items() if text in json.dumps(value)
        ]

    monkeypatch.setattr(leaks.observers, "on_host", on_host)
    product = SimpleNamespace(fleet=[SimpleNamespace(name="gpu00")])
    assert leaks.on_hosts(product, {"inline": value, "other": leaks.canary("other")}) == [
        ("inline", "gpu00:/home/gpu/.trainyard/x")
    ]


def test_what_passes_through_the_broker_is_kept(tmp_path):
    """Also what is gone from it a moment later."""
    value = leaks.canary("message")
    with contextlib.closing(Redis().start()) as daemon:
        product = SimpleNamespace(redis=daemon, data=tmp_path)
        with leaks.BrokerWatch(product) as watch:
            client = leaks.redis.Redis(unix_socket_path=str(daemon.socket))
            client.publish("topic", json.dumps({"html": value}))
            client.close()
        assert leaks.found({"messages": watch.text}, {"message": value}) == [("message", "messages")]
