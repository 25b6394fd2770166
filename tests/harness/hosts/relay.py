"""The network of a host on a loopback port: starts an `sshd -i` for each connection, and can be cut.

Usage: relay.py ADDRESS PORT SSHD_CONFIG. Reads one word a line: up | cut | reset; answers each with "ok".
cut holds all bytes and lets no new connection through; reset breaks every connection. Ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time


class Relay:
    def __init__(self, address, port, config):
        self.config = config
        self.flowing = True
        self.generation = 0
        self.daemons = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, port))
        self.listener.listen(128)

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection, self.generation), daemon=True).start()

    def serve(self, connection, generation):
        self.wait_for_flow()
        ours, theirs = socket.socketpair()
        with theirs:
            command = ["/usr/sbin/sshd", "-i", "-f", self.config, "-E", self.config + ".log"]
            daemon = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        self.daemons.append(daemon)
        for source, target in ((connection, ours), (ours, connection)):
            threading.Thread(target=self.pump, args=(source, target, generation), daemon=True).start()
        daemon.wait()
        self.daemons.remove(daemon)

    def wait_for_flow(self):
        while not self.flowing:
            time.sleep(0.02)

    def pump(self, source, target, generation):
        try:
            while data := source.recv(65536):
                self.wait_for_flow()
                if generation != self.generation:
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            if generation != self.generation:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def obey(self, word):
        if word == "up":
            self.flowing = True
        elif word == "cut":
            self.flowing = False
        elif word == "reset":
            self.generation += 1
            for daemon in list(self.daemons):
                daemon.kill()
            self.flowing = True


def main(address, port, config):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay = Relay(address, int(port), config)
    threading.Thread(target=relay.accept, daemon=True).start()
    print("ok", flush=True)
    for line in sys.stdin:
        relay.obey(line.strip())
        print("ok", flush=True)
    for daemon in list(relay.daemons):
        daemon.kill()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
