"""The address at which the replicas of a job reach each other on a host.

The address by which Trainyard reaches the host is not always the right one. It may be a name, which the host itself
resolves to 127.0.1.1, so that it listens where no other host reaches it; it may belong to a jump host's side; or the
host may have a faster network for data. So a check finds the host's own address, and an admin may choose another one.
"""

from __future__ import annotations

import ipaddress

from agents.hosts.probe import Network
from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Host

FOUND = ""


def found_address(address: str, network: Network | None) -> str:
    """The host's own address, as a check found it, or "" if it is not known. `address`: where Trainyard dials.

    The end of the SSH connection on the host is an address by which at least Trainyard, or the jump host, reaches it.
    """
    own = [each.address for each in network.interfaces] if network else []
    if network is None or is_loopback(address):
        return ""
    for found in (network.ssh, address, network.route):
        if found in own and not is_loopback(found):
            return found
    return ""


def address_for_data(host: Host) -> str:
    return host.data_address or host.found_address or host.address


def mbit(host: Host) -> int:
    """The speed of the card over which replicas of this host reach others; 0 where it is not known."""
    network = host.facts.get("network") or {}
    address = address_for_data(host)
    found = [each.get("mbit", 0) for each in network.get("interfaces", []) if each["address"] == address]
    return max(found, default=0)


def choices(host: Host) -> list[tuple[str, str]]:
    """(interface, address) of everything that an admin may choose: the last check found it, or Trainyard dials it."""
    network = host.facts.get("network") or {}
    found = [(each["name"], each["address"]) for each in network.get("interfaces", [])]
    found = [each for each in found if not is_loopback(each[1])]
    dialled = [] if host.address in {address for _, address in found} else [("", host.address)]
    return found + dialled


def refuse_unknown(host: Host, address: str) -> None:
    """Raise Refused for an address that the host does not have: replicas would wait for each other for ever."""
    known = [known for _, known in choices(host)]
    if address != FOUND and address not in known:
        raise Refused(
            "data_address",
            said(
                "{host} has no interface with the address {address}. It has {addresses}. If the address is new, "
                "check the host again first.",
                host=host.name,
                address=address,
                addresses=", ".join(known),
            ),
        )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
