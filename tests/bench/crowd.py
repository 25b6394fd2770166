"""A crowd in one web process: idle sockets, many pages of one job, and shells that print without end.

Measured is what everybody else gets meanwhile: the delay of another job's lines, the time of REST calls, how many
sockets the product closes, and the memory of web before and after.
"""

from __future__ import annotations

import json
import select
import threading
import time

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import cpu_seconds, product_on_hosts, rss_mb
from tests.bench.logs import PRINTER
from tests.bench.viewers import BINARY, PING, PONG, TEXT, Viewer
from tests.harness.product import job_spec
from tests.harness.product.client import Client
from tests.harness.product.product import PASSWORD

IDLE, PAGES, SHELLS, SHELLS_OF_A_PERSON = 1_000, 250, 51, 17
ACK_STEP = 32 * 1024
SECONDS = 15
FLOOD = b"yes a line of a program that prints without end\n"


def crowd(options):
    part = 10 if options.quick else 1
    with product_on_hosts("apart", hosts=3) as product:
        web = product.processes.of("web")
        seen = product.submit(job_spec(["python3", "-c", PRINTER, 20_000], name="seen", web_access=True))
        product.client.wait_for_log(seen, ".")
        pages, cores, _ = held(product, [f"/ws/jobs/{seen}"] * (PAGES // part), web)
        yield Figure(
            f"{PAGES // part} pages of one running job, of a core",
            f"{cores:.2f}",
            "",
            None,
            "≤ 0.2",
            cores <= 0.2,
        )
        pages.close()
        before = rss_mb(web)
        others, cores, closed = held(product, ["/ws/jobs", f"/ws/jobs/{seen}"] * (IDLE // part // 2), web)
        yield Figure(
            f"{IDLE // part} idle sockets, of a core", f"{cores:.2f}", "", None, "≤ 0.3", cores <= 0.3
        )
        lines, calls = everybody_else(product, seen)
        yield Figure("a line of another job, without shells that print", spread(lines))
        yield Figure("a REST call, without shells that print", spread(calls))
        floods = shells(product, seen, SHELLS // part)
        try:
            lines, calls = everybody_else(product, seen)
        finally:
            floods.close()
        closed = others.closed + floods.closed
        p95, rest = percentile(lines, 0.95), percentile(calls, 0.95)
        beside = f"beside {SHELLS // part} shells that print"
        yield Figure(f"a line of another job, {beside}", spread(lines), "", None, "p95 ≤ 60 ms", p95 <= 60)
        yield Figure(f"a REST call, {beside}", spread(calls), "", None, "p95 ≤ 50 ms", rest <= 50)
        yield Figure("sockets that the product closed", str(closed), "", None, "0", closed == 0)
        most = rss_mb(web)
        others.close()
        time.sleep(5 if options.quick else 45)
        after = rss_mb(web)
        told = f"{short(before)} → {short(most)} → {short(after)} MB"
        yield Figure(
            "web's memory: before, in and after the crowd", told, "", None, "+40 MB", after - before < 40
        )


def held(product, paths, web):
    """Open sockets and leave them alone for a while. Returns them, the part of a core they need, and how many ended."""
    sockets = Crowd()
    for path in paths:
        sockets.add(Viewer(product, path))
    time.sleep(5)
    before, began = cpu_seconds(web), time.time()
    time.sleep(SECONDS)
    return sockets, (cpu_seconds(web) - before) / (time.time() - began), sockets.closed


def shells(product, job_id, count):
    """Shells of several people, each running a program that prints without end."""
    [run] = [run["id"] for run in product.runs(job_id)]
    crowd = Crowd()
    for number in range(0, count, SHELLS_OF_A_PERSON):
        name = f"person-{number}"
        add = ("user", "add", name, "--admin", "--password-stdin")
        _, token = product.commands(add, ("token", "create", name), stdin=PASSWORD + "\n")
        own = Person(product, token.strip())
        for _ in range(min(SHELLS_OF_A_PERSON, count - number)):
            shell = Viewer(own, f"/ws/shell/{run}")
            shell.send(TEXT, json.dumps({"resize": [80, 24]}).encode())
            crowd.add(shell)
    time.sleep(5)
    for shell in list(crowd.sockets.values()):
        shell.send(BINARY, FLOOD)
    return crowd


class Person:
    """The product, as somebody else uses it."""

    def __init__(self, product, token):
        self.url, self.client = product.url, Client(product.url, token)


class Crowd:
    """Sockets that a thread reads: it answers pings, acknowledges output, and counts the sockets that end."""

    def __init__(self):
        self.sockets = {}
        self.closed, self.over = 0, False
        self.poll = select.epoll()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def add(self, one):
        """Read this socket from now on: opening all of them may take longer than a ping waits for its answer."""
        self.sockets[one.socket.fileno()] = one
        self.poll.register(one.socket.fileno(), select.EPOLLIN)

    def read(self):
        while not self.over:
            for number, _ in self.poll.poll(0.2):
                try:
                    self.take(self.sockets[number])
                except OSError:
                    self.closed += 1
                    self.poll.unregister(number)

    def take(self, one):
        data = one.socket.recv(1 << 17)
        if not data:
            raise ConnectionResetError
        one.came += data
        while (frame := one.next_frame()) is not None:
            kind, content = frame
            if kind == PING:
                one.send(PONG, content)
            elif kind == BINARY:
                one.taken += len(content)
                if one.taken - one.acked >= ACK_STEP:
                    one.acked = one.taken
                    one.send(TEXT, json.dumps({"ack": one.taken}).encode())

    def close(self):
        self.over = True
        self.thread.join()
        for one in self.sockets.values():
            one.socket.close()


def everybody_else(product, job_id):
    """The delays of another viewer's lines, and the times of REST calls, in ms."""
    lines, calls = [], []
    viewer = Viewer(product, f"/ws/jobs/{job_id}/log/workerpool0-0")
    viewer.send(TEXT, json.dumps({"tail": 0}).encode())
    poll = select.epoll()
    poll.register(viewer.socket.fileno(), select.EPOLLIN)
    over = threading.Event()

    def call():
        while not over.wait(0.1):
            begun = time.perf_counter()
            product.client.job(job_id)
            calls.append((time.perf_counter() - begun) * 1000)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    until = time.time() + SECONDS
    while time.time() < until:
        if poll.poll(0.1):
            lines += viewer.delays()
    over.set()
    caller.join()
    viewer.socket.close()
    return lines, calls
