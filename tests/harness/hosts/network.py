"""A private network and mount table, for the calling thread and everything that it starts.

The mount table is entered once and kept: it is a private copy, so it affects no other process. The network is entered
for each test that needs hosts and left afterwards, so that other tests in the same process keep the machine's loopback.
Both end with the process; nothing has to be cleaned up.
"""

from __future__ import annotations

import ctypes
import os

from tests.harness.wait_and_processes import run, succeeds

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
SUBNET = "10.77"
GATEWAY = f"{SUBNET}.0.1"
BRIDGE = "yard0"
# A network of the hosts' own, for data: nothing of the product is in it.
SECOND_SUBNET, SECOND_BRIDGE = "10.78", "yard1"


def call(name, *arguments):
    """Call libc, and raise instead of returning -1."""
    if getattr(LIBC, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


class PrivateNetwork:
    """A new network namespace with a bridge, to which hosts are connected."""

    def __init__(self):
        self.outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        call("unshare", CLONE_NEWNS | CLONE_NEWNET)
        self.inside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        run("mount", "--make-rprivate", "/")
        run("ip", "link", "set", "lo", "up")
        plug = f"link add {BRIDGE} type bridge\naddr add {GATEWAY}/16 dev {BRIDGE}\nlink set {BRIDGE} up\n"
        run("ip", "-batch", "-", stdin=plug)

    def enter(self):
        call("setns", self.inside, CLONE_NEWNET)

    def leave(self):
        call("setns", self.outside, CLONE_NEWNET)


_the_network = None


def private_network():
    """Enter this process's private network; the first call makes it."""
    global _the_network
    if _the_network is None:
        _the_network = PrivateNetwork()
    else:
        _the_network.enter()
    return _the_network


def second_network():
    """Make the second network, for fleets whose hosts have two. It ends with the first."""
    if not succeeds("ip", "link", "show", SECOND_BRIDGE):
        run("ip", "-batch", "-", stdin=f"link add {SECOND_BRIDGE} type bridge\nlink set {SECOND_BRIDGE} up\n")


def leave_private_network():
    if _the_network is not None:
        _the_network.leave()


def namespaces_work():
    """Whether hosts in namespaces can be made here; `tools/with-hosts` provides that."""
    if os.geteuid() != 0 or os.environ.get("TRAINYARD_TEST_HOSTS") == "ports":
        return False
    return succeeds(
        "unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "true"
    )


def time_namespaces_work():
    return succeeds("unshare", "--time", "true")
