"""Evidence from outside: what viewers see over time, what processes hold, what a stranger gets, where a secret lies."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import re
import sqlite3
import subprocess
import threading
import time
from collections import Counter

import psycopg
import redis
import requests
from websockets.exceptions import WebSocketException

from tests.harness.wait_and_processes import command_of

STATE = re.compile(r'role="status"[^>]*>\s*<span class="badge[^"]*" data-state="(\w+)"')
VIEWERS = SCRIPT, PAGE = "a script", "a page"
# How long a page is looked at.
PAGE_S = 1.5
# Log bytes are what the user's program printed; it may print what it likes.
LOG_TABLES = ("jobs_logpiece", "jobs_logsegment")
# What no file on a host and no row may have, whoever made the key.
PRIVATE_KEY = "PRIVATE KEY-----"
SEARCH = r"""
import json, os, sys
needles, found = json.loads(sys.stdin.read()), []
for folder, _, names in os.walk(os.path.expanduser("~/.trainyard")):
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.isfile(path):  # a pipe would wait for its other end
            continue
        try:
            with open(path, "rb") as file:
                data = file.read(1 << 20)
        except OSError:  # it was removed just now
            continue
        found += [(secret, path) for secret, text in needles.items() if text.encode() in data]
print(json.dumps(found))
"""


class JobWatcher(threading.Thread):
    """Looks at one job after another, as a script and as an open page do, and keeps what it saw in order.

    What the product kills meanwhile ends a look. That none of them saw anything is an error.
    """

    def __init__(self, product, seed):
        super().__init__(daemon=True)
        self.product, self.dice = product, random.Random(seed)
        self.over = threading.Event()
        self.looks, self.seen, self.problem = 0, Counter(), None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        self.join(60)
        if kind is None:
            blind = [viewer for viewer in VIEWERS if not self.seen[viewer]]
            assert not blind, f"{blind} saw nothing in {self.looks} looks; the last problem: {self.problem!r}"

    def run(self):
        while not self.over.wait(0.2):
            if self.product.accepted:
                job_id = self.dice.choice(self.product.accepted[-5:])
                self.looks += 1
                try:
                    self.look(job_id)
                except (OSError, requests.RequestException, WebSocketException, ValueError) as problem:
                    self.problem = problem

    def look(self, job_id):
        """A process that is down for a moment ends the look. The next one must not be behind it."""
        self.ask(job_id)
        # What a browser opens: the parts of the page as HTML, and beats between them.
        with self.product.client.socket(f"/ws/live?at=%2Fjobs%2F{job_id}%2F") as page:
            until = time.monotonic() + PAGE_S
            with contextlib.suppress(TimeoutError):
                while (left := until - time.monotonic()) > 0:
                    if shown := STATE.search(page.recv(timeout=left)):
                        self.saw(PAGE, job_id, None, shown[1])
        self.ask(job_id)

    def ask(self, job_id):
        answer = self.product.client.session.get(f"{self.product.url}/api/v1/jobs/{job_id}", timeout=5)
        if answer.ok:
            document = answer.json()
            state = document["customJob"]["state"].removeprefix("JOB_STATE_")
            self.saw(SCRIPT, job_id, document["version"], state)

    def saw(self, viewer, job_id, version, state):
        self.seen[viewer] += 1
        self.product.sightings.append(
            {"viewer": viewer, "job_id": job_id, "version": version, "state": state}
        )


def sizes(product):
    found = []
    for role in ("web", "worker", "dispatcher", "beat"):
        for pid in product.processes.of(role):
            with contextlib.suppress(OSError, StopIteration):
                found.append({"process": f"{role} {pid}", **size_of(pid)})
    return found


def size_of(pid):
    with open(f"/proc/{pid}/status") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return {
        "rss_mb": resident / 1024,
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
    }


def denied(product):
    """What a person without any right is answered about the newest jobs and about the hosts."""
    found = []
    for job in product.query("SELECT id, display_name, owner_name FROM jobs_job ORDER BY id DESC LIMIT 3"):
        words = [f'"{job["display_name"]}"', f'"{job["owner_name"]}"']
        for path in (
            f"/api/v1/jobs/{job['id']}",
            f"/api/v1/jobs/{job['id']}/replicas/workerpool0-0/log",
            f"/v1/projects/default/locations/default/customJobs/{job['id']}",
            f"/jobs/{job['id']}/",
        ):
            answer = requests.get(
                product.url + path,
                headers={"Authorization": f"Bearer {product.stranger}"},
                timeout=30,
                allow_redirects=False,
            )
            # A page knows no tokens: it sends whoever has no session to the login.
            to_login = answer.status_code == 302 and answer.headers["Location"].startswith("/login")
            leaked = next((word for word in words if word in answer.text), "")
            status = 404 if to_login else answer.status_code
            found.append({"address": path, "status": status, "leaked": leaked})
    return found


def canaries(product):
    """Where a secret of this product can be read that should be nowhere."""
    needles = {**product.secrets, "private key": PRIVATE_KEY}
    places = {
        "the output of its processes": product.output.read_bytes(),
        "the database": database_text(product),
        "the broker": broker_text(product),
        "the command line of a process": "\n".join(map(command_of, product.processes.all())).encode(),
    }
    found = [
        {"secret": secret, "place": place}
        for place, text in places.items()
        for secret, needle in needles.items()
        if needle.encode() in text
    ]
    for host in product.fleet:
        found += [{"secret": each, "place": f"{host.name}:{path}"} for each, path in on_host(host, needles)]
    return found


def on_host(host, needles):
    done = subprocess.run(
        host.as_user("python3", "-c", SEARCH),
        input=json.dumps(needles),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return (
        json.loads(done.stdout) if done.returncode == 0 else [("nothing that can be searched", done.stderr)]
    )


def database_text(product):
    if product.database.startswith("postgres"):
        with psycopg.connect(product.database) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL(%s)",
                [list(LOG_TABLES)],
            ).fetchall()
            rows = [connection.execute(f'SELECT t::text FROM "{name}" t').fetchall() for (name,) in tables]
        return "\n".join(text for table in rows for (text,) in table).encode()
    with contextlib.closing(sqlite3.connect(f"file:{product.database}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = [name for (name,) in names if name not in LOG_TABLES]
        rows = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables]
    return "\n".join(str(row) for table in rows for row in table).encode()


def broker_text(product):
    """Everything that Redis holds, as text."""
    socket = product.redis.socket if product.redis else next(pathlib.Path(product.data).rglob("*.sock"), None)
    if socket is None:
        return b""
    readers = {
        b"string": lambda client, key: client.get(key),
        b"list": lambda client, key: client.lrange(key, 0, -1),
        b"hash": lambda client, key: client.hgetall(key),
        b"set": lambda client, key: client.smembers(key),
        b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
        b"stream": lambda client, key: client.xrange(key),
        b"none": lambda client, key: "",
    }
    with redis.Redis(unix_socket_path=str(socket)) as client:
        return "\n".join(
            f"{key} {readers[client.type(key)](client, key)}" for key in client.scan_iter()
        ).encode()
