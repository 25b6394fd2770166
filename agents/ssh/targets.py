"""Where to dial: what dial.py needs to know of a host, independent of its row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.infra.texts import said

if TYPE_CHECKING:
    from agents.models import Host

ADDRESS = re.compile(r"^[A-Za-z0-9:][A-Za-z0-9._:%-]{0,254}$")
USER = re.compile(r"^[A-Za-z_][A-Za-z0-9._-]{0,63}\$?$")
_ENDPOINT = re.compile(
    r"^(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<address>[^\[\]\s:]+))(?::(?P<port>\d{1,5}))?$"
)


@dataclass(frozen=True, slots=True)
class Jump:
    """One jump host on the way to a host (ProxyJump)."""

    user: str
    address: str
    port: int
    pinned_key: str = ""

    @property
    def endpoint(self) -> str:
        return address_text(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a host is, the login name to use there, and the host key that it must show."""

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
            Jump(jump.user, jump.address, jump.port, keys.get(jump.endpoint, ""))
            for jump in parse_jumps(host.jump, host.user)
        )
        return cls(host.name, host.address, host.port, host.user, host.pinned_key, jumps)


def address_text(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_address(text: str, user: str, port: int = 22) -> tuple[str, str, int]:
    """'[user@]address[:port]' → (user, address, port). The message of a ValueError says what is wrong."""
    if text.count(":") > 1 and "[" not in text:  # a bare IPv6 address
        text = re.sub(r"^((?:[^@]+@)?)(.*)$", r"\1[\2]", text)
    found = _ENDPOINT.match(text)
    if not found:
        raise ValueError(said("{text} is not [user@]address[:port]", text=repr(text)))
    login = found["user"] or user
    host = found["six"] or found["address"]
    number = int(found["port"] or port)
    if not ADDRESS.match(host):
        raise ValueError(said("{address} is not a host name or an IP address", address=repr(host)))
    if not USER.match(login):
        raise ValueError(said("{login} is not a login name", login=repr(login)))
    if not 0 < number < 65536:
        raise ValueError(said("port {number} is not between 1 and 65535", number=number))
    return login, host, number


def parse_jumps(text: str, user: str) -> tuple[Jump, ...]:
    """Parse the notation of ProxyJump: 'user@gate:22,inner'."""
    return tuple(Jump(*parse_address(part.strip(), user)) for part in text.split(",") if part.strip())


def explicit_jumps(text: str, user: str) -> str:
    """The same jump hosts, each with the user that it means for a host with the login `user`."""
    return ",".join(f"{jump.user}@{jump.endpoint}" for jump in parse_jumps(text, user))
