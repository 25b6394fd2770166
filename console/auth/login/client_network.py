"""The part of a client's address that stands for one client, where clients are counted or slowed down."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

IPV6_PREFIX = 64


def client_network(address: str) -> str:
    """The address itself, or the /64 network of an IPv6 address: one machine usually has such a network for itself.

    An IPv4 address that is written as IPv6 (::ffff:10.0.0.1) is the IPv4 address. Other text is returned as it is.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(found) if found.is_loopback else str(IPv6Network((int(found), IPV6_PREFIX), strict=False))
