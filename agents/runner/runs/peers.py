"""Whether the programs of a run have connected to those of its peers: replicas of the same job, on any host.

Looked at a few times a minute, until the first connection was seen. Only TCP is looked at: programs that train together
find each other by it, whatever they use afterwards.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

LOOK_S = 20.0
MAX_PEERS = 256
# A host with more sockets or open files than this is not looked at to the end: its programs count as connected.
MAX_SOCKETS, MAX_FILES = 50_000, 50_000
ESTABLISHED, TIME_WAIT = "01", "06"

# An address without its form: ::ffff:10.0.0.1 is 10.0.0.1.
End = Tuple[str, int]


class Connection(NamedTuple):
    """A TCP socket of this host. `inode` is 0 when no process has it any more."""

    here: End
    there: End
    state: str
    inode: int


class Peers(NamedTuple):
    """The peers' addresses, and the ports of the peers and of the run itself. `beside`: a peer shares this host."""

    addresses: Set[str]
    ports: Set[int]
    beside: bool


def peers_of(order: Dict[str, Any]) -> Peers | None:
    """None where nothing is to be looked at. Everything in the order came from the console, but it may be newer."""
    found = order.get("peers")
    ends = [_end(each) for each in found[:MAX_PEERS]] if isinstance(found, list) else []
    known = [end for end in ends if end is not None]
    if not known:
        return None
    own = order.get("port")
    ports = {port for _, port in known} | ({own} if isinstance(own, int) else set())
    addresses = {address for address, _ in known if address}
    here = order.get("address")
    return Peers(addresses, ports, isinstance(here, str) and plain(here) in addresses)


def _end(text: object) -> End | None:
    """`10.0.0.1:7000` or `[fd00::1]:7000`. The address is empty for a name, of which only the port is compared."""
    address, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not port.isdigit():
        return None
    return plain(address.strip("[]")), int(port)


def plain(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def connected(pid: int, pids: Iterable[int], peers: Peers) -> bool | None:
    """Whether one of these processes has, or lately had, a connection to a peer. None: it cannot be told.

    `pid` is a process in the run's network namespace.
    """
    table = read_table("/proc/%d/net" % pid)
    if table is None:
        return None
    if len(table) >= MAX_SOCKETS:
        return True
    near = [each for each in table if _may_be_a_peer(each, peers)]
    if any(each.state == TIME_WAIT for each in near):
        return True
    if not near:
        return False
    own = _own_sockets(pids)
    if own is None:
        return True
    by_ends = {(each.here, each.there): each.inode for each in table}
    return any(
        each.inode in own and by_ends.get((each.there, each.here), 0) not in own
        for each in near
        if each.inode
    )


def _may_be_a_peer(each: Connection, peers: Peers) -> bool:
    by_port = each.there[1] in peers.ports or each.here[1] in peers.ports
    if each.state == TIME_WAIT:
        # No process has it any more: only the ports tell whose it was. A connection to oneself has both ends here.
        return by_port and each.here[0] != each.there[0] and not each.there[0].startswith("127.")
    return each.state == ESTABLISHED and (
        by_port or each.there[0] in peers.addresses or (peers.beside and each.there[0].startswith("127."))
    )


def read_table(directory: str) -> List[Connection] | None:
    found: List[Connection] = []
    read = 0
    for name in ("tcp", "tcp6"):
        try:
            with open(os.path.join(directory, name)) as file:
                next(file, None)
                for line in file:
                    each = _connection(line)
                    if each is not None:
                        found.append(each)
                    if len(found) >= MAX_SOCKETS:
                        return found
                read += 1
        except OSError:
            continue
    return found if read else None


def _connection(line: str) -> Connection | None:
    fields = line.split()
    if len(fields) < 10 or fields[3] not in (ESTABLISHED, TIME_WAIT):
        return None
    try:
        return Connection(_address(fields[1]), _address(fields[2]), fields[3], int(fields[9]))
    except ValueError:
        return None


def _address(text: str) -> End:
    """`0100007F:1F90`: four bytes in the order of the machine, or sixteen in words of four."""
    number, _, port = text.partition(":")
    words = [bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)]
    packed = b"".join(words)
    found = ipaddress.IPv4Address(packed) if len(packed) == 4 else ipaddress.IPv6Address(packed)
    return plain(str(found)), int(port, 16)


def _own_sockets(pids: Iterable[int]) -> Set[int] | None:
    """The sockets that these processes have open; None if there are too many files."""
    found: Set[int] = set()
    for seen, target in enumerate(_open_files(pids)):
        if seen >= MAX_FILES:
            return None
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def _open_files(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        directory = "/proc/%d/fd" % pid
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            try:
                yield os.readlink(os.path.join(directory, name))
            except OSError:
                continue
