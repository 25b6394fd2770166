"""Many sockets on one log, read by a client that costs little, so that the product is measured."""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import struct
import time
from urllib.parse import quote, urlsplit

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import cpu_seconds, forget_peak, peak_mb, product_on_hosts, rss_mb
from tests.bench.logs import PRINTER, WRITER
from tests.harness.product import job_spec

TEXT, BINARY, PING, PONG = 1, 2, 9, 10
# As the page does (static/log.js).
ACK_STEP = 32 * 1024
LIST_SECONDS = 10


def live(page):
    """The address of the socket that a browser opens for a page: its parts as HTML, and beats."""
    return f"/ws/live?at={quote(page, safe='')}"


def viewers(options):
    """Many sockets on one log at 100 lines/s, many on the list of jobs, and one that never reads."""
    few, many, of_list = (20, 40, 30) if options.quick else (200, 500, 300)
    with product_on_hosts("apart") as product:
        script = PRINTER.replace("0.02", "0.01")
        job_id = product.submit(job_spec(["python3", "-c", script, 20_000], name="viewed"))
        product.client.wait_for_log(job_id, ".")
        watched = {count: watch(product, job_id, count) for count in (few, many)}
        changes, list_cores = watch_list(product, of_list)
        grown = deaf_viewer(product)
    for (count, (delays, cores)), most in zip(watched.items(), (20, 100), strict=True):
        p50 = percentile(delays, 0.5)
        name = f"{count} viewers of one log at 100 lines/s"
        yield Figure(name, spread(delays), "", None, f"p50 ≤ {most} ms", p50 <= most)
        yield Figure("of a core in web meanwhile", f"{cores:.2f}", "", None, "≤ 1", cores <= 1)
    what = f"{of_list} viewers of the list: POST answered → each has the job"
    yield Figure(what, spread(changes), "", None, "p50 ≤ 500 ms", percentile(changes, 0.5) <= 500)
    yield Figure(
        "of a core in web meanwhile, a job a second", f"{list_cores:.2f}", "", None, "≤ 1", list_cores <= 1
    )
    yield Figure(
        "a viewer that never reads a 30 MB log", f"+{short(grown)} MB in web", "", None, "bounded", grown < 20
    )


def deaf_viewer(product):
    """Return how many MB web grew by for a viewer that asks for a log of 30 MB and never reads."""
    web = product.processes.of("web")
    flood = product.submit(job_spec(["python3", "-c", WRITER, 30], name="flood"))
    product.client.wait(flood, "SUCCEEDED", timeout=120)
    before = rss_mb(web)
    forget_peak(web)
    with product.client.socket(f"/ws/jobs/{flood}/log/workerpool0-0") as socket:
        socket.send(json.dumps({"from": 0}))
        time.sleep(5)
        return peak_mb(web) - before


def watch(product, job_id, count):
    """Measure the delay of every line at every viewer, and the part of a core that the web process needed."""
    path = f"/ws/jobs/{job_id}/log/workerpool0-0"
    poll, by_number = opened(product, path, count, Viewer.delays, json.dumps({"tail": 0}).encode())

    def read(seconds):
        delays, until = [], time.time() + seconds
        while time.time() < until:
            for number, _ in poll.poll(0.1):
                delays += by_number[number].delays()
        return delays

    read(4)
    web = product.processes.of("web")
    before, began = cpu_seconds(web), time.time()
    delays = read(8)
    cores = (cpu_seconds(web) - before) / (time.time() - began)
    for viewer in by_number.values():
        viewer.socket.close()
    return delays, cores


def opened(product, path, count, read, first=b""):
    """Open many sockets, and read those that are open meanwhile: the product cuts off who answers no ping for 20 s."""
    poll, by_number = select.epoll(), {}
    for _ in range(count):
        viewer = Viewer(product, path)
        if first:
            viewer.send(TEXT, first)
        poll.register(viewer.socket.fileno(), select.EPOLLIN)
        by_number[viewer.socket.fileno()] = viewer
        for number, _ in poll.poll(0):
            read(by_number[number])
    return poll, by_number


def watch_list(product, count):
    """Submit a job a second. Measure until every viewer of the list has got a frame with it, and what web needs."""
    poll, by_number = opened(product, live("/jobs/"), count, Viewer.contents)
    web, delays = product.processes.of("web"), []
    frames_until(poll, by_number, time.time() + 3)
    before, began = cpu_seconds(web), time.time()
    for second in range(1, LIST_SECONDS + 1):
        job_id = product.submit(job_spec(["sleep", "20"], name=f"listed {second}"))
        answered, missing = time.time(), set(by_number)
        address = f"/jobs/{job_id}".encode()
        until = max(began + second, answered + 0.2)
        while missing and time.time() < answered + 30:
            for number, content in frames_until(poll, by_number, time.time()):
                if address in content and number in missing:
                    missing.discard(number)
                    delays.append((time.time() - answered) * 1000)
        assert not missing, f"{len(missing)} of {count} viewers of the list have not got the job"
        frames_until(poll, by_number, until)
    cores = (cpu_seconds(web) - before) / (time.time() - began)
    for each in by_number.values():
        each.socket.close()
    return delays, cores


def frames_until(poll, by_number, until):
    """Read all sockets until then, and answer pings. Returns each socket's number with the content of a frame."""
    found = []
    while True:
        for number, _ in poll.poll(min(0.1, max(0.005, until - time.time()))):
            found += [(number, content) for content in by_number[number].contents()]
        if time.time() >= until:
            return found


class Viewer:
    """One WebSocket, with only what a viewer of a log needs."""

    def __init__(self, product, path):
        url = urlsplit(product.url)
        self.socket = socket.create_connection((url.hostname, url.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = [f"GET {path} HTTP/1.1", f"Host: {url.netloc}", "Upgrade: websocket", "Connection: Upgrade"]
        head += [
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        head += [f"Authorization: Bearer {product.client.token}", "\r\n"]
        self.socket.sendall("\r\n".join(head).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.socket.recv(1)
        assert b" 101 " in answer, answer
        self.came, self.rest = b"", b""
        self.taken = self.acked = 0

    def send(self, kind, data):
        assert len(data) < 126
        self.socket.send(bytes([0x80 | kind, 0x80 | len(data)]) + bytes(4) + data)  # a mask of zeros

    def arrived(self):
        """The kind and content of each whole frame that has come. Pings are answered."""
        self.came += self.socket.recv(1 << 17)
        while (frame := self.next_frame()) is not None:
            if frame[0] == PING:
                self.send(PONG, frame[1])
            yield frame

    def delays(self):
        """Return for each whole line how many ms ago it was printed, by its own time."""
        return [delay for kind, data in self.arrived() if kind == BINARY for delay in self.lines(data)]

    def contents(self):
        return [data for _, data in self.arrived()]

    def lines(self, data):
        now = time.time()
        begun = self.taken > 0
        self.taken += len(data)
        if self.taken - self.acked >= ACK_STEP:
            self.acked = self.taken
            self.send(TEXT, json.dumps({"ack": self.taken}).encode())
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [(now - float(line)) * 1000 for line in lines if begun]

    def next_frame(self):
        came = self.came
        if len(came) < 2:
            return None
        size, head = came[1] & 127, 2
        if size == 126:
            size, head = struct.unpack("!H", came[2:4])[0] if len(came) >= 4 else 0, 4
        elif size == 127:
            size, head = struct.unpack("!Q", came[2:10])[0] if len(came) >= 10 else 0, 10
        if len(came) < head + size:
            return None
        self.came = came[head + size :]
        return came[0] & 15, came[head : head + size]
