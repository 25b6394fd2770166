"""Where secrets of users could leak: one canary for each way in which a secret enters, looked for in every place.

`BrokerWatch` keeps all that passes through Redis; `found` searches pages, answers and frames that a test collected, the
tables, the data directory, the output of processes, command lines here and on hosts, and files on hosts.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import secrets
import threading
import urllib.parse
import uuid

import redis

from tests.harness.product import observers
from tests.harness.wait_and_processes import command_of

# Logs are what programs printed: they are masked when they are shown, not where they are stored.
LOGS = "logs"
# So many characters are in no text by chance.
CORE = 12


def canary(where):
    """A value that is nowhere else. It looks like a token, with characters that JSON and addresses write otherwise."""
    return f'{where}-{uuid.uuid4().hex}/"+é'


def forms(value):
    """The texts by which a value can be recognised."""
    raw = value.encode()
    # The part before characters that are written otherwise in JSON and in addresses, where that part says enough.
    core = value.split("/")[0]
    core = core if len(core) >= CORE else value
    return {
        core.encode(),
        core.encode().hex().encode(),
        json.dumps(value)[1:-1].encode(),
        urllib.parse.quote(value, safe="").encode(),
        base64.b64encode(raw)[:40],
        base64.b64encode(b"x" + raw)[4:40],
        base64.b64encode(b"xy" + raw)[4:40],
    }


def found(places, canaries):
    """(canary, place) for each canary that is in a place. `places`: name → bytes or text."""
    needles = {name: forms(value) for name, value in canaries.items()}
    return sorted(
        (name, place)
        for place, content in places.items()
        for name, texts in needles.items()
        if any(text in _bytes(content) for text in texts)
    )


def places_of(product):
    """Every place of a running product where something could have been left, by name."""
    return {
        "the tables": observers.database_text(product),
        "the broker": observers.broker_text(product),
        "the output of processes": product.output.read_bytes(),
        **{f"the file {path}": data for path, data in _files(product)},
        **{f"the command line of {pid}": line for pid, line in _command_lines()},
    }


def on_hosts(product, canaries):
    """(canary, place) for each file below ~/.trainyard of a host that has one."""
    needles = {
        f"{name} {number}": text.decode("latin-1")
        for name, value in canaries.items()
        for number, text in enumerate(sorted(forms(value)))
    }
    hits = [(host, hit) for host in product.fleet for hit in observers.on_host(host, needles)]
    return sorted({(name.rpartition(" ")[0], f"{host.name}:{path}") for host, (name, path) in hits})


def environments(canaries):
    """(canary, command line) for each process, here and on test hosts, that has one in its environment."""
    places = {}
    for pid, line in _command_lines():
        with contextlib.suppress(OSError):
            places[f"{line} #{pid}"] = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    return [(name, place) for name, place in found(places, canaries)]


class BrokerWatch:
    """All commands that Redis gets while this is open, as MONITOR shows them."""

    def __init__(self, product):
        socket = product.redis.socket if product.redis else next(pathlib.Path(product.data).rglob("*.sock"))
        self._client = redis.Redis(unix_socket_path=str(socket), encoding_errors="replace")
        self._seen = []
        self._end = secrets.token_hex(16)
        self._thread = threading.Thread(target=self._watch, name="broker watch")

    def __enter__(self):
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_):
        # What was sent before this was seen before it.
        with contextlib.suppress(redis.RedisError):
            self._client.echo(self._end)
        self._thread.join(30)
        self._monitor.__exit__(None, None, None)
        self._client.close()

    @property
    def text(self):
        return "\n".join(self._seen)

    def _watch(self):
        with contextlib.suppress(redis.RedisError, OSError, ValueError):
            while self._end not in (command := str(self._monitor.next_command()["command"])):
                self._seen.append(command)


def _files(product):
    """The files of the data directory. SQLite's are searched table by table, without the logs."""
    for folder, folders, names in os.walk(product.data):
        folders[:] = [name for name in folders if name != LOGS]
        for name in names:
            path = pathlib.Path(folder, name)
            if path.is_file() and "sqlite3" not in name:
                with contextlib.suppress(OSError):
                    yield path.relative_to(product.data), path.read_bytes()


def _command_lines():
    """Those of the processes of this machine, and of the test hosts, whose processes it can see."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            line = command_of(int(name))
            if line:
                yield name, line


def _bytes(content):
    return content if isinstance(content, bytes) else str(content).encode("utf-8", "replace")
