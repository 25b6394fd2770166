"""A host as people name it, alone or many pasted at once; what cannot be is refused with its field and its cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from agents.hosts import host_history
from agents.infra.refusals import Refused
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
    """One line of several pasted hosts."""

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
    name, address, user, jump = name.strip(), address.strip(), user.strip(), jump.strip()
    _refuse_nonsense(name, address, port, user, jump)
    place = Location.objects.filter(name=location or DEFAULT_LOCATION).first()
    if place is None:
        place = _new_location(location)
    try:
        with transaction.atomic():
            host = Host.objects.create(
                name=name,
                address=address,
                port=port,
                user=user,
                jump=jump,
                location=place,
                created_at=now,
                added_by=actor,
                status_since=now,
                due_at=now,
            )
            host_history.record(host.pk, "added", f"{user}@{address}:{port}", actor, now)
    except IntegrityError:
        raise Refused("name", f"A host named {name!r} exists already. Choose another name.") from None
    return host


def parse_pasted(text: str, user: str = "") -> list[PastedHost]:
    """Pasted hosts, one a line: `name [user@]address[:port] [jump]`, or only `[user@]address[:port]`."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    rows: list[PastedHost] = []
    wrong: list[str] = []
    for number, words in enumerate(lines, 1):
        try:
            rows += [_row(number, words, user)] if words else []
        except Refused as refused:
            wrong.append(refused.message)
    if wrong:
        raise InvalidLines(wrong[:MAX_MESSAGES])
    if not rows:
        raise Refused("hosts", "There is no host in the text. One a line: name user@address:port")
    if len(rows) > MAX_PASTED:
        raise Refused("hosts", f"{len(rows)} hosts at once are more than {MAX_PASTED}. Paste fewer.")
    names = [row.name for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused("hosts", f"These names stand there twice: {', '.join(twice)}.")
    return rows


def _refuse_nonsense(name: str, address: str, port: int, user: str, jump: str) -> None:
    if not name or slugify(name) != name.lower() or len(name) > 63:
        raise Refused("name", "A host's name has 1 to 63 letters, digits, '-' and '_'. For example: gpu-01")
    if not ADDRESS.match(address):
        raise Refused("address", f"{address!r} is not a host name or an IP address.")
    if not 0 < port < 65536:
        raise Refused("port", f"{port} is not between 1 and 65535. sshd's usual port is 22.")
    if not USER.match(user):
        raise Refused("user", f"{user!r} is not a login name.")
    try:
        parse_jumps(jump, user)
    except ValueError as error:
        raise Refused("jump", f"{error}. Write it as in ssh -J: user@gate:22,user@inner") from None


def _new_location(name: str) -> Location:
    if slugify(name) != name or not name or len(name) > 63:
        raise Refused(
            "location", "A location's name has lower-case letters, digits and '-'. For example: lab-a"
        )
    return Location.objects.get_or_create(name=name)[0]


def _row(number: int, words: Sequence[str], user: str) -> PastedHost:
    if len(words) == 1:
        words = ["", words[0]]
    name, where, *rest = words
    if len(rest) > 1:
        raise Refused(
            "hosts", f"Line {number}: more than a name, an address and a jump: {' '.join(rest[1:])}"
        )
    try:
        who, address, port = parse_address(where, user)
    except ValueError as error:
        raise Refused("hosts", f"Line {number}: {error}.") from None
    row = PastedHost(name or slugify(address.replace(".", "-")), address, port, who, rest[0] if rest else "")
    try:
        _refuse_nonsense(row.name, row.address, row.port, row.user, row.jump)
    except Refused as refused:
        raise Refused("hosts", f"Line {number}: {refused.message}") from None
    return row
