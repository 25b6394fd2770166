"""The network interfaces of this host, and the variables that name the one over which replicas find each other.

Without them, gloo and torch's RPC ask for the address of the host's own name. Debian and Ubuntu write 127.0.1.1 for it
into /etc/hosts: then a replica listens where no other host reaches it.
"""

from __future__ import annotations

import ctypes
import socket
from typing import Dict, Iterator, List, NamedTuple

from agents.runner.linux import libc

# An address from the block for documentation: a datagram socket that is connected to it sends nothing.
_ELSEWHERE = "192.0.2.1"


class Interface(NamedTuple):
    """One address of one interface that is up."""

    name: str
    address: str


class _Ifaddrs(ctypes.Structure):
    """`struct ifaddrs` of getifaddrs(3), as far as it is read here."""


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]
_UP = 0x1
_MAX_ADDRESSES = 256


def interfaces() -> List[Interface]:
    """The addresses of the interfaces that are up. Empty where the kernel does not tell."""
    head = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        return []
    try:
        return list(_walk(head))
    finally:
        libc.freeifaddrs(head)


def _walk(at: "ctypes._Pointer[_Ifaddrs]") -> Iterator[Interface]:
    for _ in range(_MAX_ADDRESSES):
        if not at:
            return
        entry = at.contents
        address = _address(entry.address) if entry.address and entry.flags & _UP else ""
        if address:
            yield Interface(entry.name.decode("utf-8", "replace"), address)
        at = entry.next


def _address(at: int) -> str:
    """The text of a sockaddr: its family is in the first two bytes, the address behind port (and flow, for IPv6)."""
    family = ctypes.c_ushort.from_address(at).value
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(at + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, ctypes.string_at(at + 8, 16))
    return ""


def route_address() -> str:
    """The address of this host on the way to others, by its routes; empty where it has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def interface_of(address: str, found: List[Interface]) -> str:
    """The name of the interface that has this address, or else of the one with the way to others; may be empty."""
    for wanted in (address, route_address()):
        for interface in found:
            if wanted and interface.address == wanted:
                return interface.name
    return ""


def network_variables(address: str) -> Dict[str, str]:
    """The variables by which gloo, NCCL and torch's RPC choose the interface with this address of the host."""
    found = interfaces()
    name = interface_of(address, found)
    if not name:
        return {}
    # NCCL takes the name for the beginning of a name: eth1 would be eth10 too. With = it must be the whole name.
    longer = any(other.name != name and other.name.startswith(name) for other in found)
    return {
        "GLOO_SOCKET_IFNAME": name,
        "NCCL_SOCKET_IFNAME": "=" + name if longer else name,
        "TP_SOCKET_IFNAME": name,
    }
