"""A path between a browser and the product that can be frozen: bytes stop, nothing is closed, no new connection opens.

So a lost VPN looks to both ends. A process of its own, so that no busy test delays it.
Usage: freezing_proxy.py PORT. Prints its own port, then reads one word a line: freeze | thaw; answers each with "ok".
Ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading

from tests.harness.leftovers import owned_environment

HERE = "127.0.0.1"


class FreezingProxy:
    """`with FreezingProxy(url) as path`: `path.url` leads to the product."""

    def __init__(self, url):
        words = [sys.executable, "-m", "tests.harness.freezing_proxy", url.rpartition(":")[2]]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=owned_environment()
        )
        self.url = f"http://{HERE}:{self.process.stdout.readline().strip()}"

    def freeze(self):
        self.obey("freeze")

    def thaw(self):
        self.obey("thaw")

    def obey(self, word):
        print(word, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "ok\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


class Relay:
    def __init__(self, port):
        self.port = port
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = socket.socket()
        self.listener.bind((HERE, 0))
        # A connection waits for `accept` at most; the next ones get no answer, as on a dead path.
        self.listener.listen(0)

    def accept(self):
        while True:
            self.flowing.wait()
            # Not `accept` alone: the path may be frozen while it waits.
            if select.select([self.listener], [], [], 0.02)[0] and self.flowing.is_set():
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        server = socket.create_connection((HERE, self.port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.flowing.wait()
                target.sendall(data)
        # An end is a packet too, and is lost on the way.
        self.flowing.wait()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def main(port):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay = Relay(int(port))
    threading.Thread(target=relay.accept, daemon=True).start()
    print(relay.listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        (relay.flowing.clear if line.strip() == "freeze" else relay.flowing.set)()
        print("ok", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
