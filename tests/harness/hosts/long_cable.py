"""A long cable: carries every frame between two interfaces of this network, each way so many milliseconds later.

Usage: long_cable.py INTERFACE INTERFACE DELAY_MS. Says "ready"; ends when its stdin does. What a kernel calls netem,
for kernels that have none.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

ALL_PROTOCOLS = 0x0003
SOL_PACKET, WITH_OFFLOADS, NOT_OUR_OWN = (
    263,
    15,
    23,
)  # linux/if_packet.h: PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING
LARGEST = 1 << 17  # the kernel hands over what it would only cut into packets at a real card
WAITING = 8 << 20


def plug(interface):
    """Both ends of a veth leave checksums and cutting to the other side, so frames go on with what is left to do."""
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
        with contextlib.suppress(OSError):  # full, or nobody is there: lost, as on any cable
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
