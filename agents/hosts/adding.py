"""Add hosts: one from a form, or several from pasted lines. A wrong value is refused with its field and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from agents.hosts import host_history
from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Host, Location
from agents.ssh.targets import ADDRESS, USER, parse_address, parse_jumps

DEFAULT_LOCATION = "default"
MAX_PASTED = 500
MAX_MESSAGES = 50


class InvalidLines(Refused):
    """Some of the pasted lines are wrong. There is a message for each of them, so that all can be corrected at once."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("hosts", "\n".join(messages))
        self.messages = list(messages)


@dataclass(frozen=True, slots=True)
class PastedHost:
    """One of several hosts that were pasted, one a line."""

    name: str
    address: str
    port: int
    user: str
    jump: str


def add_host(
    name: str,
    address: str,
    port: int,
    user: str,
    location: str,
    jump: str,
    actor: str,
    now: datetime,
) -> Host:
    """Store a new host, whose first check is due now. Raises Refused. A location that does not exist yet is created."""
    name, address, user, jump = name.strip(), address.strip(), user.strip(), jump.strip()
    _check_name(name)
    check_place(address, port, user, jump)
    row = location_named(location)
    try:
        with transaction.atomic():
            host = Host.objects.create(
                name=name,
                address=address,
                port=port,
                user=user,
                jump=jump,
                location=row,
                created_at=now,
                added_by=actor,
                status_since=now,
                due_at=now,
            )
            host_history.record(host.pk, "added", f"{user}@{address}:{port}", actor, now)
    except IntegrityError:
        raise Refused(
            "name", said("A host named {name} exists already. Choose another name.", name=repr(name))
        ) from None
    return host


def parse_pasted(text: str, user: str = "") -> list[PastedHost]:
    """Parse hosts, one a line: `name [user@]address[:port] [jump]`, or only `[user@]address[:port]`."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    rows: list[PastedHost] = []
    problems: list[str] = []
    for number, parts in enumerate(lines, 1):
        try:
            rows += [_pasted_host(number, parts, user)] if parts else []
        except Refused as refused:
            problems.append(refused.message)
    if problems:
        raise InvalidLines(problems[:MAX_MESSAGES])
    if not rows:
        raise Refused("hosts", said("The text holds no host. Write one a line: name user@address:port"))
    if len(rows) > MAX_PASTED:
        raise Refused(
            "hosts",
            said(
                "{number} hosts are too many at once. Paste at most {most}.",
                number=len(rows),
                most=MAX_PASTED,
            ),
        )
    names = [row.name for row in rows]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise Refused(
            "hosts", said("These names occur more than once: {names}.", names=", ".join(duplicates))
        )
    return rows


def _check_name(name: str) -> None:
    if not name or slugify(name) != name.lower() or len(name) > 63:
        raise Refused(
            "name", said("A host's name has 1 to 63 letters, digits, '-' and '_'. For example: gpu-01")
        )


def check_place(address: str, port: int, user: str, jump: str) -> None:
    """Raises Refused, with the field, for what cannot be where a host is."""
    if not ADDRESS.match(address):
        raise Refused(
            "address", said("{address} is not a host name or an IP address.", address=repr(address))
        )
    if not 0 < port < 65536:
        raise Refused("port", said("{port} is not between 1 and 65535. sshd's usual port is 22.", port=port))
    if not USER.match(user):
        raise Refused("user", said("{login} is not a login name.", login=repr(user)))
    try:
        parse_jumps(jump, user)
    except ValueError as error:
        raise Refused(
            "jump", said("{error}. Write it as in ssh -J: user@gate:22,user@inner", error=error)
        ) from None


def location_named(name: str) -> Location:
    """The location of this name; a new one, if there is none. Raises Refused for what cannot be a name."""
    known = Location.objects.filter(name=name or DEFAULT_LOCATION).first()
    if known is not None:
        return known
    if slugify(name) != name or not name or len(name) > 63:
        raise Refused(
            "location", said("A location's name has lower-case letters, digits and '-'. For example: lab-a")
        )
    return Location.objects.get_or_create(name=name)[0]


def _pasted_host(number: int, parts: Sequence[str], user: str) -> PastedHost:
    if len(parts) == 1:
        parts = ["", parts[0]]
    name, endpoint, *rest = parts
    if len(rest) > 1:
        raise Refused(
            "hosts",
            said(
                "Line {number}: unexpected after the name, the address and the jump: {words}",
                number=number,
                words=" ".join(rest[1:]),
            ),
        )
    try:
        login, address, port = parse_address(endpoint, user)
    except ValueError as error:
        raise Refused("hosts", said("Line {number}: {error}.", number=number, error=error.args[0])) from None
    row = PastedHost(
        name or slugify(address.replace(".", "-")), address, port, login, rest[0] if rest else ""
    )
    try:
        _check_name(row.name)
        check_place(row.address, row.port, row.user, row.jump)
    except Refused as refused:
        raise Refused(
            "hosts", said("Line {number}: {message}", number=number, message=refused.message)
        ) from None
    return row
