"""A crowd in one web process: idle sockets, many pages of one job, and shells that print without end.

Measured is what everybody else gets meanwhile: the delay of another job's lines, the time of REST calls, how many
sockets the product closes, and the memory of web before and after.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from tests.bench import crowd_reader, processor_time
from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import TICKS, cpu_seconds, product_on_hosts, rss_mb
from tests.bench.logs import PRINTER
from tests.bench.viewers import BINARY, PING, PONG, TEXT, Viewer, live
from tests.harness.product import job_spec
from tests.harness.product.client import Client
from tests.harness.product.product import PASSWORD

IDLE, PAGES, SHELLS, SHELLS_OF_A_PERSON = 1_000, 250, 51, 17
SECONDS = 15
READY, READY_S = b'{"ready"', 60
FLOOD = b"yes a line of a program that prints without end\n"


def crowd(options):
    part = 10 if options.quick else 1
    with product_on_hosts("apart", hosts=3) as product:
        web = product.processes.of("web")
        seen = product.submit(job_spec(["python3", "-c", PRINTER, 20_000], name="seen", web_access=True))
        product.client.wait_for_log(seen, ".")
        page, alone = live(f"/jobs/{seen}/"), rss_mb(web)
        pages, cores = held(product, [page] * (PAGES // part), web)
        name = f"{PAGES // part} pages of one running job, of a core"
        yield Figure(name, f"{cores:.2f}", "", None, "≤ 0.2", cores <= 0.2)
        yield Figure(
            "web's memory for each of them, KB", short((rss_mb(web) - alone) * 1024 / (PAGES // part))
        )
        closed = pages.close()
        before = rss_mb(web)
        others, cores = held(product, [live("/jobs/"), page] * (IDLE // part // 2), web)
        name = f"{IDLE // part} idle sockets, of a core"
        yield Figure(name, f"{cores:.2f}", "", None, "≤ 0.3", cores <= 0.3)
        yield from figures(Others(product, seen).measured(), "without shells that print")
        floods = shells(product, seen, SHELLS // part)
        used = Used(product, [floods.process.pid, others.process.pid])
        beside = f"beside {SHELLS // part} shells that print"
        yield from figures(Others(product, seen).measured(), beside, aims=(60, 50))
        yield Figure(f"of the cores, {beside}", used.told())
        yield Figure("output of the shells, MB/s", short(floods.counts()["bytes"] / 1e6 / used.seconds()))
        most = rss_mb(web)
        closed += floods.close() + others.close()
        ends = ", ".join(f"{count} {how}" for how, count in sorted(Counter(closed).items()))
        yield Figure("sockets that the product closed", ends or "0", "", None, "0", not closed)
        time.sleep(5 if options.quick else 45)
        after = rss_mb(web)
        told = f"{short(before)} → {short(most)} → {short(after)} MB"
        name = "web's memory: before, in and after the crowd"
        yield Figure(name, told, "", None, "+40 MB", after - before < 40)


def figures(others, beside, aims=(None, None)):
    for name, values, aim in (
        ("a line of another job", others.lines, aims[0]),
        ("a REST call", others.calls, aims[1]),
        ("the event loop answers a ping", others.lags, None),
    ):
        p95 = percentile(values, 0.95)
        told = f"{spread(values)}, p95 {short(p95)}"
        yield Figure(
            f"{name}, {beside}", told, "", None, f"p95 ≤ {aim} ms" if aim else "", p95 <= aim if aim else None
        )


class Used:
    """Who needs the processors from now on. The hosts are on them too, with all that their shells print."""

    def __init__(self, product, readers):
        self.product, self.readers = product, readers
        self.begun, self.before = time.time(), self.now()

    def now(self):
        parts = processor_time.by_part(self.product)
        return parts | {"the bench's readers": cpu_seconds(self.readers), "idle": idle_seconds()}

    def seconds(self):
        return time.time() - self.begun

    def told(self):
        seconds, now = self.seconds(), self.now()
        used = {name: (now[name] - self.before[name]) / seconds for name in now}
        parts = [f"{name} {cores:.2f}" for name, cores in used.items() if cores >= 0.005]
        return ", ".join(parts) + f" of {os.cpu_count()}"


def idle_seconds():
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[4]) / TICKS


def held(product, paths, web):
    """Open pages' sockets and leave them alone for a while. Returns them, and the part of a core they need.

    Each must have been sent its page, and beats: otherwise nothing was measured.
    """
    sockets = Crowd()
    for path in paths:
        sockets.add(Viewer(product, path))
    time.sleep(5)
    before, began = cpu_seconds(web), time.time()
    time.sleep(SECONDS)
    cores = (cpu_seconds(web) - before) / (time.time() - began)
    heard = sockets.counts()
    shown = min(heard["shown"], heard["beaten"])
    assert shown == len(paths), f"{len(paths) - shown} of {len(paths)} pages were not shown, or got no beat"
    return sockets, cores


def shells(product, job_id, count):
    """Shells of several people, each running a program that prints without end."""
    [run] = [run["id"] for run in product.runs(job_id)]
    # Before any shell: nobody reads those that are open while a command runs, and pings would wait too long.
    people = [person(product, number) for number in range(-(-count // SHELLS_OF_A_PERSON))]
    crowd, opened = Crowd(), []
    for number in range(count):
        opened.append(Shell(people[number // SHELLS_OF_A_PERSON], run))
        for shell in opened:
            shell.hear(0)
    until = time.time() + READY_S
    while waiting := [shell for shell in opened if not shell.ready]:
        assert time.time() < until, f"{len(waiting)} of {count} shells are not open after {READY_S} s"
        for shell in opened:
            shell.hear(0.01)
    for shell in opened:
        shell.send(BINARY, FLOOD)
        crowd.add(shell)
    return crowd


def person(product, number):
    name = f"person-{number}"
    add = ("user", "add", name, "--admin", "--password-stdin")
    _, token = product.commands(add, ("token", "create", name), stdin=PASSWORD + "\n")
    return Person(product, token.strip())


class Shell(Viewer):
    """A shell that is not read by the crowd yet."""

    def __init__(self, product, run):
        super().__init__(product, f"/ws/shell/{run}")
        self.ready = False
        self.send(TEXT, json.dumps({"resize": [80, 24]}).encode())

    def hear(self, patience_s):
        """Answer pings, and see whether the shell is open."""
        if select.select([self.socket], [], [], patience_s)[0]:
            frames = list(self.arrived())
            assert frames or self.came, "the product closed a shell before it was open"
            self.ready = self.ready or any(data.startswith(READY) for _, data in frames)


class Person:
    """The product, as somebody else uses it."""

    def __init__(self, product, token):
        self.url, self.client = product.url, Client(product.url, token)


class Crowd:
    """Sockets that a process of its own reads (crowd_reader.py)."""

    def __init__(self):
        self.control, other = socket.socketpair()
        with other:
            command = (sys.executable, "-S", crowd_reader.__file__, str(other.fileno()))
            self.process = subprocess.Popen(command, pass_fds=(other.fileno(),))

    def add(self, one):
        """Read this socket from now on: opening all of them may take longer than a ping waits for its answer."""
        socket.send_fds(self.control, [b"+"], [one.socket.fileno()])
        one.socket.close()

    def counts(self):
        """How the product has ended sockets, how many bytes of output came, and how many sockets were sent a part of
        their page, and a beat."""
        self.control.sendall(b"?")
        return json.loads(self.control.recv(1 << 16))

    def close(self):
        """Close all sockets. Returns how the product had ended some of them before."""
        ends = self.counts()["ends"]
        self.control.close()
        self.process.wait()
        return ends


class Others:
    """What everybody else gets meanwhile: the delay of another viewer's lines, the times of REST calls, and how long
    the event loop of web lets a ping wait (it answers pings by itself), all in ms. In threads that are mostly asleep.
    """

    def __init__(self, product, job_id):
        self.lines, self.calls, self.lags = [], [], []
        self.product, self.job_id = product, job_id
        self.over = threading.Event()

    def measured(self):
        threads = [threading.Thread(target=each, daemon=True) for each in (self.call, self.ping)]
        for thread in threads:
            thread.start()
        self.read_lines()
        self.over.set()
        for thread in threads:
            thread.join()
        return self

    def read_lines(self):
        viewer = Viewer(self.product, f"/ws/jobs/{self.job_id}/log/workerpool0-0")
        viewer.send(TEXT, json.dumps({"tail": 0}).encode())
        until = time.time() + SECONDS
        while time.time() < until:
            if select.select([viewer.socket], [], [], 0.1)[0]:
                self.lines += viewer.delays()
        viewer.socket.close()

    def call(self):
        """One GET after the other on one connection, as a script does, without a library that needs the processor."""
        address = urlsplit(self.product.client.jobs_url)
        connection = http.client.HTTPConnection(address.hostname, address.port)
        headers = {"Authorization": f"Bearer {self.product.client.token}"}
        while not self.over.wait(0.1):
            begun = time.perf_counter()
            connection.request("GET", f"{address.path}/{self.job_id}", headers=headers)
            answer = connection.getresponse()
            assert answer.read() and answer.status == 200, answer.status
            self.calls.append((time.perf_counter() - begun) * 1000)
        connection.close()

    def ping(self):
        """The socket belongs to the job's page; its own messages are skipped."""
        viewer = Viewer(self.product, live(f"/jobs/{self.job_id}/"))
        while not self.over.wait(0.02):
            begun = time.perf_counter()
            viewer.send(PING, b"lag")
            while (frame := viewer.next_frame()) is None or frame[0] != PONG:
                if frame is None:
                    viewer.came += viewer.socket.recv(1 << 17)
                elif frame[0] == PING:
                    viewer.send(PONG, frame[1])
            self.lags.append((time.perf_counter() - begun) * 1000)
        viewer.socket.close()
