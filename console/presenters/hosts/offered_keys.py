"""The keys that wait to be accepted, beside what an admin pasted. Page, REST and command line ask this."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from agents.hosts.pasted_keys import Compared, Offer, Pasted, PastedKey, Verdict, compare, kind_of, names_of
from agents.infra.sentences import shown
from agents.models import Host
from agents.ssh.host_keys import fingerprint
from agents.ssh.targets import address_text, parse_address
from console.auth import access
from console.presenters.badges import Badge

BADGES = {
    Verdict.EQUAL: Badge("equal", gettext_noop("Equal"), "good", "tick"),
    Verdict.DIFFERS: Badge("differs", gettext_noop("Differs"), "bad", "cross"),
    Verdict.AMBIGUOUS: Badge("ambiguous", gettext_noop("Two for one host"), "warn", "note"),
    Verdict.MISSING: Badge("missing", gettext_noop("Not pasted"), "wait", "hourglass"),
}
MOST_LINES = 4


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A key that a host shows and that nobody has accepted. `at`: the jump host that shows it, "" for the host itself.
    `accepted`: the fingerprint that was accepted before; the key has changed if there is one.
    """

    row: Host
    name: str
    url: str
    address: str
    at: str
    fingerprint: str
    kind: str
    accepted: str


@dataclass(frozen=True, slots=True)
class ComparedKey:
    """`lines`: the pasted keys that led to the verdict, as text."""

    key: WaitingKey
    verdict: Verdict
    lines: tuple[str, ...]

    @property
    def badge(self) -> Badge:
        return BADGES[self.verdict]

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        return gettext(_WORDS[self.verdict])

    @property
    def is_equal(self) -> bool:
        return self.verdict == Verdict.EQUAL

    @property
    def value(self) -> str:
        """What the page's checkbox sends: which key of which host the admin saw."""
        return f"{self.key.row.pk} {self.key.fingerprint}"


@dataclass(frozen=True, slots=True)
class KeyPage:
    """`silent`: hosts that have not shown a key yet. `unused`: pasted lines that fit no waiting key."""

    keys: tuple[ComparedKey, ...]
    problems: tuple[str, ...]
    unused: tuple[str, ...]
    equal: int


def machines_of(user: User) -> QuerySet[Host]:
    return access.visible(user, Host.machines.all())


def waiting(machines: QuerySet[Host]) -> list[WaitingKey]:
    """The keys that wait to be accepted, by the names of their hosts. Makes one query."""
    hosts = machines.exclude(offered_key="").order_by("name")
    return [_waiting(host) for host in hosts.defer("checklist", "facts")]


def silent(machines: QuerySet[Host]) -> list[str]:
    """The hosts that have shown no key yet: they do not answer, or were not asked yet."""
    hosts = machines.filter(offered_key="", pinned_key="").order_by("name")
    return list(hosts.values_list("name", flat=True))


def compared(machines: QuerySet[Host], pasted: Pasted) -> KeyPage:
    """Each waiting key beside the pasted lines. Makes two queries for any number of hosts."""
    keys = waiting(machines)
    offers = [Offer(_place(key), key.fingerprint, key.kind) for key in keys]
    found = compare(offers, pasted.keys, _places(machines))
    rows = tuple(_row(key, each) for key, each in zip(keys, found, strict=True))
    used = {line.line for each in found for line in each.lines}
    return KeyPage(
        keys=rows,
        problems=tuple(shown(problem) for problem in pasted.problems),
        unused=tuple(_text(line) for line in pasted.keys if line.line not in used),
        equal=sum(row.is_equal for row in rows),
    )


def chosen(page: KeyPage, values: Collection[str]) -> list[tuple[Host, str]]:
    """Those that were ticked and are equal now: what a page says is not believed."""
    return [(row.key.row, row.key.fingerprint) for row in page.keys if row.is_equal and row.value in values]


_WORDS: Mapping[Verdict, str] = {
    Verdict.EQUAL: gettext_noop("The pasted fingerprint is the same."),
    Verdict.DIFFERS: gettext_noop(
        "Another key is pasted for this host. Something else may answer at its address: find out before you accept."
    ),
    Verdict.AMBIGUOUS: gettext_noop(
        "The text does not decide: it has two keys for one host, or two hosts show one key. Name the host in the line."
    ),
    Verdict.MISSING: gettext_noop("No pasted line has this key or names this host with a key of this kind."),
}


def _waiting(host: Host) -> WaitingKey:
    before = host.jump_keys.get(host.offered_at, "") if host.offered_at else host.pinned_key
    return WaitingKey(
        row=host,
        name=host.name,
        url=reverse("host", args=[host.pk]),
        address=address_text(host.address, host.port),
        at=host.offered_at,
        fingerprint=fingerprint(host.offered_key),
        kind=kind_of(host.offered_key),
        accepted=fingerprint(before) if before else "",
    )


def _place(key: WaitingKey) -> str:
    return key.at or _place_of(key.row.jump, key.row.address, key.row.port)


def _place_of(jump: str, address: str, port: int) -> str:
    """The same address behind two jump hosts is two machines."""
    return f"{jump} {address_text(address, port)}"


def _places(machines: QuerySet[Host]) -> dict[str, set[str]]:
    """Each name that a pasted line may have → the machines that are called so: all hosts, and their jump hosts."""
    found: dict[str, set[str]] = {}
    loose: dict[str, set[str]] = {}
    columns = ("name", "address", "port", "jump", "offered_at")
    for name, address, port, jump, offered_at in machines.values_list(*columns):
        place = _place_of(jump, address, port)
        for each in (name, *names_of(address, port)):
            found.setdefault(each.lower(), set()).add(place)
        loose.setdefault(address.lower(), set()).add(place)
        if offered_at:
            _, gate, gate_port = parse_address(offered_at, "x")
            for each in names_of(gate, gate_port):
                found.setdefault(each.lower(), set()).add(offered_at)
    # An address without a port means port 22, if a host has that there.
    return {**loose, **found}


def _row(key: WaitingKey, found: Compared) -> ComparedKey:
    return ComparedKey(key, found.verdict, tuple(_text(line) for line in found.lines[:MOST_LINES]))


def _text(line: PastedKey) -> str:
    """A pasted key in one line, without what is not needed to find it in the text."""
    names = " ".join(dict.fromkeys((*line.before, *line.after)))[:100]
    kind = f" ({line.kind})" if line.kind else ""
    return gettext("line {number}: {names} {fingerprint}{kind}").format(
        number=line.line, names=names, fingerprint=line.fingerprint, kind=kind
    )
