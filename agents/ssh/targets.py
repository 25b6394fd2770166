"""Where to dial: a host as the dialler sees it, free of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.models import Host

ADDRESS = re.compile(r"^[A-Za-z0-9:][A-Za-z0-9._:%-]{0,254}$")
USER = re.compile(r"^[A-Za-z_][A-Za-z0-9._-]{0,63}\$?$")
_PLACE = re.compile(
    r"^(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<address>[^\[\]\s:]+))(?::(?P<port>\d{1,5}))?$"
)


@dataclass(frozen=True, slots=True)
class Jump:
    """One machine on the way (ProxyJump)."""

    user: str
    address: str
    port: int
    pinned_key: str = ""

    @property
    def place(self) -> str:
        return address_text(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a host is, as whom to log in, and the key it must show."""

    name: str
    address: str
    port: int
    user: str
    pinned_key: str
    jumps: tuple[Jump, ...] = ()

    @classmethod
    def of(cls, host: Host) -> Target:
        keys: dict[str, str] = host.jump_keys
        jumps = tuple(
            Jump(j.user, j.address, j.port, keys.get(j.place, "")) for j in parse_jumps(host.jump, host.user)
        )
        return cls(host.name, host.address, host.port, host.user, host.pinned_key, jumps)


def address_text(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_address(text: str, user: str, port: int = 22) -> tuple[str, str, int]:
    """'[user@]address[:port]' → (user, address, port); ValueError says what is wrong with it."""
    if text.count(":") > 1 and "[" not in text:  # a bare IPv6 address
        text = re.sub(r"^((?:[^@]+@)?)(.*)$", r"\1[\2]", text)
    found = _PLACE.match(text)
    if not found:
        raise ValueError(f"{text!r} is not [user@]address[:port]")
    who = found["user"] or user
    where = found["six"] or found["address"]
    at = int(found["port"] or port)
    if not ADDRESS.match(where):
        raise ValueError(f"{where!r} is not a host name or an IP address")
    if not USER.match(who):
        raise ValueError(f"{who!r} is not a login name")
    if not 0 < at < 65536:
        raise ValueError(f"port {at} is not between 1 and 65535")
    return who, where, at


def parse_jumps(text: str, user: str) -> tuple[Jump, ...]:
    """ProxyJump's notation: 'user@gate:22,inner'."""
    return tuple(Jump(*parse_address(part.strip(), user)) for part in text.split(",") if part.strip())
