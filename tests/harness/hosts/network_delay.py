"""A cable with latency: carries every frame between two interfaces of this network, with a delay each way.

Usage: network_delay.py INTERFACE INTERFACE DELAY_MS. Prints "ready"; ends when its stdin does. It does what netem does,
for kernels without it.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

ALL_PROTOCOLS = 0x0003
# linux/if_packet.h: PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING
SOL_PACKET, WITH_OFFLOADS, NOT_OUR_OWN = 263, 15, 23
# The kernel hands over large frames, which only a real card would cut into packets.
LARGEST = 1 << 17
WAITING = 8 << 20


def plug(interface):
    """Open an interface. A veth leaves checksums and segmentation to the other side; frames keep these notes."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (WITH_OFFLOADS, NOT_OUR_OWN):
        end.setsockopt(SOL_PACKET, option, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        end.setsockopt(socket.SOL_SOCKET, option, WAITING)
    end.bind((interface, ALL_PROTOCOLS))
    end.setblocking(False)
    return end


def take_in(source, target, queue, delay):
    while True:
        try:
            frame = source.recv(LARGEST)
        except OSError:  # nothing more now, or the host is off
            return
        queue.append((time.monotonic() + delay, target, frame))


def send_on(queue):
    while queue and queue[0][0] <= time.monotonic():
        _, target, frame = queue.popleft()
        with contextlib.suppress(OSError):  # full, or no receiver: lost, as on any cable
            target.send(frame)


def main(one, other, delay_ms):
    here, there = plug(one), plug(other)
    ends = {here: there, there: here}
    queue = collections.deque()
    print("ready", flush=True)
    while True:
        patience = max(queue[0][0] - time.monotonic(), 0) if queue else None
        ready, _, _ = select.select([sys.stdin, *ends], [], [], patience)
        if sys.stdin in ready:
            return
        for end in ready:
            take_in(end, ends[end], queue, float(delay_ms) / 1000)
        send_on(queue)


if __name__ == "__main__":
    main(*sys.argv[1:])
