"""Keys and bursts through our shell, beside an OpenSSH client in a local pty."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import time
import tty

from tests.bench.figures import Figure, percentile, short
from tests.bench.hosts_and_product import product_on_hosts
from tests.bench.socket_client import SocketClient
from tests.harness.browser import headless_chromium, log_in
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

BURST_MB = 20
# Keys that one client types in its turn.
KEYS = 10
QUIET_PROMPT = b"stty -echo; PS1=; stty echo; echo rea''dy\n"
# As the page does (static/shell.js).
ACK_STEP = 32 * 1024
BY_HAND, LIBRARY, UNRECORDED = (
    "frames made by hand",
    "the library's client",
    "the library's client, not recorded",
)
# Each client, what it is measured against, and how often that time its own may be. By hand is what the socket takes.
COMPARED = (
    (BY_HAND, "ssh", 1.5),
    (LIBRARY, "ssh", 1.8),
    ("Chromium", "ssh", None),
    (LIBRARY, UNRECORDED, 1.05),
)
BURST_AIM = 0.8
MARK = b"burst-is-over"
# The mark is composed on the host, so that the echo of the typed line does not match.
BURST = f"head -c {BURST_MB}000000 /dev/zero | tr '\\0' x | fold -w 100; echo burst-is-''over\n".encode()

# A shell's socket in the page: what came is kept as text, and each key waits for its echo.
OPEN = """path => new Promise((resolve, reject) => {
  const socket = window.shell = new WebSocket(location.origin.replace("http", "ws") + path);
  socket.binaryType = "arraybuffer";
  window.came = "";
  window.seen = () => {};
  socket.onopen = () => socket.send(JSON.stringify({resize: [80, 24]}));
  socket.onerror = () => reject(new Error("the shell's socket was refused"));
  socket.onmessage = ({data}) => {
    if (typeof data === "string") return "ready" in JSON.parse(data) ? resolve() : undefined;
    window.came += new TextDecoder().decode(data);
    window.seen();
  };
})"""
PREPARE = """command => new Promise(resolve => {
  window.seen = () => window.came.includes("ready") && setTimeout(resolve, 500);
  window.shell.send(new TextEncoder().encode(command));
})"""
ECHO = """key => new Promise(resolve => {
  window.came = "";
  const begin = performance.now();
  window.seen = () => window.came.includes(key) && resolve(performance.now() - begin);
  window.shell.send(new TextEncoder().encode(key));
})"""

CLEAR = """() => new Promise(resolve => {
  window.shell.send(new Uint8Array([0x15]));
  setTimeout(resolve, 150);
})"""


class Keyboard:
    """What is typed into a shell, and when it is seen again."""

    def prepare(self):
        self.write(QUIET_PROMPT)
        read_until(self, b"ready")
        quiet(self)

    def echoes(self, first, count):
        return [echo_ms(self, number) for number in range(first, first + count)]


class Socket(Keyboard):
    """The product's shell, used as the page's script does."""

    def __init__(self, socket):
        self.socket = socket
        self.socket.send(json.dumps({"resize": [80, 24]}))
        self.taken = self.acked = 0
        while "ready" not in json.loads(self.socket.recv(timeout=30)):
            pass

    def write(self, data):
        self.socket.send(data)

    def read(self):
        message = self.socket.recv(timeout=30)
        if not isinstance(message, bytes):
            return b""
        self.taken += len(message)
        if self.taken - self.acked >= ACK_STEP:
            self.acked = self.taken
            self.socket.send(json.dumps({"ack": self.taken}))
        return message

    def close(self):
        self.socket.close()


class Terminal(Keyboard):
    """`ssh -tt` in a pty of this machine: what a person at a keyboard has."""

    def __init__(self, host):
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        command = host.ssh_command("bash", "-i", options=("-tt",))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)

    def write(self, data):
        os.write(self.master, data)

    def read(self):
        select.select([self.master], [], [], 30)
        return os.read(self.master, 1 << 16)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


class Chromium:
    """A page of the product in a browser, whose script opens the shell's socket. It takes its times itself."""

    def __init__(self, product, run, page):
        log_in(page, product.url)
        page.evaluate(OPEN, f"/ws/shell/{run}")
        self.page = page

    def prepare(self):
        self.page.evaluate(PREPARE, QUIET_PROMPT.decode())

    def echoes(self, first, count):
        times = [self.page.evaluate(ECHO, key_of(number)) for number in range(first, first + count)]
        self.page.evaluate(CLEAR)
        return times

    def close(self):
        self.page.evaluate("() => window.shell.close()")


def shell(options):
    rounds = 10 if options.quick else 50
    with product_on_hosts("apart") as product, headless_chromium(whole=True) as browser:
        spec = job_spec(["sleep", "600"], name="shell", web_access=True)
        job_id = product.submit(spec)
        product.client.wait(job_id, "RUNNING")
        run = wait_for(lambda: product.runs(job_id), "a run")[0]["id"]
        host = next(h for h in product.fleet if h.processes(run))
        clients = {
            BY_HAND: Socket(SocketClient(product.client, f"/ws/shell/{run}")),
            LIBRARY: Socket(product.client.socket(f"/ws/shell/{run}")),
            UNRECORDED: unrecorded(product, f"/ws/shell/{run}"),
            "Chromium": Chromium(product, run, browser.new_page()),
            "ssh": Terminal(host),
        }
        echoes, bursts = interleaved(clients, rounds)
        for each in clients.values():
            each.close()
        product.client.cancel(job_id)
    yield from figures(echoes, bursts)


def unrecorded(product, path):
    """A client whose shell is not recorded: that is decided when it opens."""
    project = f"{product.url}/api/v1/projects/default"
    product.client.call("PATCH", project, json={"recordShells": False})
    socket = Socket(product.client.socket(path))
    product.client.call("PATCH", project, json={"recordShells": None})
    return socket


def figures(echoes, bursts):
    for name, reference, most in COMPARED:
        ratio = percentile(echoes[name], 0.5) / percentile(echoes[reference], 0.5)
        yield Figure(
            f"echo of a key, {name}: p10, p50",
            low(echoes[name]),
            f"{reference} {low(echoes[reference])}",
            ratio,
            f"≤ {most} ×" if most else "",
            ratio <= most if most else None,
        )
    mine, other = percentile(bursts[BY_HAND], 0.5), percentile(bursts["ssh"], 0.5)
    text = f"ssh {short(other)} MB/s"
    yield Figure(
        f"burst of {BURST_MB} MB",
        f"{short(mine)} MB/s",
        text,
        mine / other,
        f"≥ {BURST_AIM} ×",
        mine >= BURST_AIM * other,
    )


def low(times):
    p10, p50 = percentile(times, 0.1), percentile(times, 0.5)
    return f"{short(p10)}, {short(p50)} ms (n={len(times)})"


def interleaved(clients, rounds):
    """Take turns, a few keys each, so that whatever else the machine does meets all of them alike.

    The shells have no prompt, and echo by the tty alone, without `cat`."""
    for client in clients.values():
        client.prepare()
    echoes = {name: [] for name in clients}
    for turn in range(rounds):
        for name, client in clients.items():
            echoes[name] += client.echoes(turn * KEYS, KEYS)
    bursts = {name: [] for name in (BY_HAND, "ssh")}
    for _ in range(3):
        for name, speeds in bursts.items():
            clients[name].write(b"\x15")
            quiet(clients[name])
            speeds.append(burst(clients[name]))
    return {name: times[KEYS:] for name, times in echoes.items()}, bursts


def key_of(number):
    return "abcdefgh"[number % 8]


def echo_ms(client, number):
    key = key_of(number).encode()
    begin = time.perf_counter()
    client.write(key)
    while key not in client.read():
        pass
    took = (time.perf_counter() - begin) * 1000
    time.sleep(0.005)
    if number % 40 == 39:  # a line of typed keys stays short
        client.write(b"\x15")
        quiet(client)
    return took


def burst(client):
    begin = time.perf_counter()
    client.write(BURST)
    size = read_until(client, MARK)
    return size / (time.perf_counter() - begin) / 1e6


def read_until(client, text):
    kept, size = b"", 0
    while text not in kept:
        got = client.read()
        size += len(got)
        kept = (kept + got)[-200:]
    return size


def quiet(client):
    """Read until nothing has come for a moment."""
    if isinstance(client, Terminal):
        while select.select([client.master], [], [], 0.15)[0]:
            os.read(client.master, 1 << 16)
        return
    with contextlib.suppress(TimeoutError):
        while True:
            client.socket.recv(timeout=0.15)
