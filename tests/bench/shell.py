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

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.bench.socket_client import SocketClient
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

BURST_MB = 20
# As the page does (static/shell.js).
ACK_STEP = 32 * 1024
MARK = b"burst-is-over"
# The mark is composed on the host, so that the echo of the typed line does not match.
BURST = f"head -c {BURST_MB}000000 /dev/zero | tr '\\0' x | fold -w 100; echo burst-is-''over\n".encode()


class Socket:
    """The product's shell, used as the page's script does."""

    def __init__(self, product, run):
        self.socket = SocketClient(product.client, f"/ws/shell/{run}")
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


class Terminal:
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


def shell(options):
    keys = 100 if options.quick else 500
    with product_on_hosts("apart") as product:
        spec = job_spec(["sleep", "600"], name="shell", web_access=True)
        job_id = product.submit(spec)
        product.client.wait(job_id, "RUNNING")
        run = wait_for(lambda: product.runs(job_id), "a run")[0]["id"]
        host = next(h for h in product.fleet if h.processes(run))
        echoes, bursts = measure(lambda: Socket(product, run), keys)
        there, theirs = measure(lambda: Terminal(host), keys)
        product.client.cancel(job_id)
    ours, ssh = percentile(echoes, 0.5), percentile(there, 0.5)
    yield Figure(
        "echo of a key", spread(echoes), f"ssh {spread(there)}", ours / ssh, "≤ 2 ×", ours <= 2 * ssh
    )
    mine, other = percentile(bursts, 0.5), percentile(theirs, 0.5)
    text = f"ssh {short(other)} MB/s"
    yield Figure(
        f"burst of {BURST_MB} MB", f"{short(mine)} MB/s", text, mine / other, "≥ 0.6 ×", mine >= 0.6 * other
    )


def measure(connect, keys):
    """Measure echo times of single keys at a tty without `cat`, and the speed of three bursts."""
    client = connect()
    try:
        client.write(b"stty -echo; PS1=; stty echo; echo rea''dy\n")
        read_until(client, b"ready")
        quiet(client)
        echoes = [echo_ms(client, key) for key in range(keys)]
        client.write(b"\x15")
        quiet(client)
        bursts = [burst(client) for _ in range(3)]
    finally:
        client.close()
    return echoes[10:], bursts


def echo_ms(client, number):
    key = b"abcdefgh"[number % 8 : number % 8 + 1]
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
