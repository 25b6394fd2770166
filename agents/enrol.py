"""How a host comes into service: added, its key offered, accepted by a person, checked.

Nothing is sent to a machine whose key nobody accepted: `offer` ends at the key exchange.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import paramiko
from django.db import IntegrityError, transaction
from django.utils.text import slugify

from agents import book, checklist, install, keys, probe
from agents.checklist import Item
from agents.dial import AuthFailed, DialError, KeyChanged, KeyUnknown, dial, run
from agents.hostkeys import fingerprint
from agents.models import Gpu, Host, HostStatus, Location
from agents.targets import ADDRESS, USER, Target, parse_jumps, split_place

PROBE_TIMEOUT_S = 30.0
DEFAULT_LOCATION = "default"
RECHECK = timedelta(minutes=30)
# A dispatcher notes every third of a lease that a host answers.
SPOKEN_TO = timedelta(seconds=20)
MAX_PASTED = 500
MOST_TOLD = 50


class Refused(ValueError):
    """What a person asked for cannot be: which field, and why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


class RefusedLines(Refused):
    """What is wrong with each of several pasted hosts, so that all can be put right at once."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("hosts", "\n".join(messages))
        self.messages = list(messages)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of several pasted hosts."""

    name: str
    address: str
    port: int
    user: str
    jump: str


def nobody() -> None:
    """Tells nobody: the default for those who do not watch a check."""


def add(
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
            book.note(host.pk, "added", f"{user}@{address}:{port}", actor, now)
    except IntegrityError:
        raise Refused("name", f"A host named {name!r} exists already. Choose another name.") from None
    return host


def parse_many(text: str, user: str = "") -> list[Row]:
    """Pasted hosts, one a line: `name [user@]address[:port] [jump]`, or only `[user@]address[:port]`."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    rows: list[Row] = []
    wrong: list[str] = []
    for number, words in enumerate(lines, 1):
        try:
            rows += [_row(number, words, user)] if words else []
        except Refused as refused:
            wrong.append(refused.message)
    if wrong:
        raise RefusedLines(wrong[:MOST_TOLD])
    if not rows:
        raise Refused("hosts", "There is no host in the text. One a line: name user@address:port")
    if len(rows) > MAX_PASTED:
        raise Refused("hosts", f"{len(rows)} hosts at once are more than {MAX_PASTED}. Paste fewer.")
    names = [row.name for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused("hosts", f"These names stand there twice: {', '.join(twice)}.")
    return rows


def offer(host_id: int, now: datetime) -> str:
    """Dial as far as the key exchange, write down an unknown key; its fingerprint, or "" when none is open."""
    host = Host.objects.get(pk=host_id)
    try:
        dial(Target.of(host), keys.private()).close()
    except KeyUnknown as unknown:
        _keep_offer(host, unknown.at, unknown.offered, now)
        return fingerprint(unknown.offered)
    except KeyChanged as changed:
        _keep_offer(host, changed.at, changed.offered, now)
        book.set_status(host.pk, HostStatus.BLOCKED, _changed_words(changed), now)
        return fingerprint(changed.offered)
    except AuthFailed:
        return ""  # the key is the pinned one; the login is the checklist's matter
    except DialError as error:
        items = [Item("Reachable", False, str(error), _reach_cure(host))]
        _keep_checklist(host.pk, items)
        Host.every.filter(pk=host.pk).update(last_error=str(error)[:2000], due_at=now + timedelta(seconds=30))
        raise
    return ""


def accept(host_id: int, shown: str, actor: str, now: datetime) -> None:
    """A named person says: that fingerprint is this machine's. It is pinned, and the check is due."""
    with transaction.atomic():
        host = Host.objects.select_for_update().get(pk=host_id)
        if not host.offered_key:
            raise Refused("fingerprint", "No key is waiting to be accepted. Connect to the host first.")
        offered = fingerprint(host.offered_key)
        if shown.strip() != offered:
            raise Refused(
                "fingerprint", f"The host offers {offered} now, not {shown.strip()}. Compare again."
            )
        if host.offered_at:
            host.jump_keys = {**host.jump_keys, host.offered_at: host.offered_key}
        else:
            host.pinned_key = host.offered_key
        what = f"{offered} of {host.offered_at or host.address}"
        host.offered_key = host.offered_at = ""
        host.key_accepted_by, host.key_accepted_at = actor, now
        host.status, host.status_since = HostStatus.CHECKING, now
        host.last_error, host.due_at = "", now
        host.save()
        book.note(host.pk, "key_accepted", what, actor, now)


def check(host_id: int, now: datetime, tell: Callable[[], None] = nobody) -> list[Item]:
    """The whole checklist, saved as it grows; the host is UP afterwards only if it is usable."""
    host = Host.objects.get(pk=host_id)
    items: list[Item] = []
    try:
        transport = dial(Target.of(host), keys.private())
    except DialError as error:
        return _dial_failed(host, error, now, tell)
    try:
        items = _greeting(host)
        _keep_checklist(host.pk, items)
        tell()
        items += _look(host, transport, now)
    except (DialError, probe.NotAProbe, OSError, paramiko.SSHException) as error:
        items.append(
            Item("Python", False, str(error)[:500], "python3 must run for this login. See the error.")
        )
    finally:
        transport.close()
    items = checklist.in_order(items)
    _finish(host, items, now)
    tell()
    return items


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


def _row(number: int, words: Sequence[str], user: str) -> Row:
    if len(words) == 1:
        words = ["", words[0]]
    name, where, *rest = words
    if len(rest) > 1:
        raise Refused(
            "hosts", f"Line {number}: more than a name, an address and a jump: {' '.join(rest[1:])}"
        )
    try:
        who, address, port = split_place(where, user)
    except ValueError as error:
        raise Refused("hosts", f"Line {number}: {error}.") from None
    row = Row(name or slugify(address.replace(".", "-")), address, port, who, rest[0] if rest else "")
    try:
        _refuse_nonsense(row.name, row.address, row.port, row.user, row.jump)
    except Refused as refused:
        raise Refused("hosts", f"Line {number}: {refused.message}") from None
    return row


def _keep_offer(host: Host, at: str, offered: str, now: datetime) -> None:
    """Written and told once, though a hint and the sweep may both be looking."""
    rows = Host.every.filter(pk=host.pk).exclude(offered_key=offered, offered_at=at)
    if rows.update(offered_key=offered, offered_at=at, last_error=""):
        book.note(host.pk, "key_offered", f"{fingerprint(offered)} of {at or host.address}", "trainyard", now)


def _changed_words(changed: KeyChanged) -> str:
    return (
        f"The host key changed: {fingerprint(changed.pinned)} was accepted, "
        f"{fingerprint(changed.offered)} is shown now. Nothing is sent until a person accepts it."
    )


def _reach_cure(host: Host) -> str:
    return f"From this machine, try: ssh -p {host.port} {host.user}@{host.address}"


def _greeting(host: Host) -> list[Item]:
    return [
        Item("Reachable", True, f"{host.address}:{host.port} answers."),
        Item("Host key", True, f"{fingerprint(host.pinned_key)}, accepted by {host.key_accepted_by}"),
        Item("Login", True, f"as {host.user}"),
    ]


def _dial_failed(host: Host, error: DialError, now: datetime, tell: Callable[[], None]) -> list[Item]:
    status = HostStatus.UNREACHABLE
    if isinstance(error, KeyUnknown | KeyChanged):
        _keep_offer(host, error.at, error.offered, now)
        reached = Item("Reachable", True, f"{host.address}:{host.port} answers.")
        changed = isinstance(error, KeyChanged)
        words = _changed_words(error) if isinstance(error, KeyChanged) else "Its key waits to be accepted."
        items = [
            reached,
            Item("Host key", False, words, "Compare the fingerprint with the host's, then accept it."),
        ]
        status = HostStatus.BLOCKED if changed else HostStatus.NEW
        error_text = words if changed else ""  # to wait for a person is no error
    elif isinstance(error, AuthFailed):
        cure = "Put this line into ~/.ssh/authorized_keys of the login: " + keys.public_line()
        items = [*_greeting(host)[:2], Item("Login", False, str(error), cure)]
        status, error_text = HostStatus.AUTH_FAILED, str(error)
    else:
        items = [Item("Reachable", False, str(error), _reach_cure(host))]
        error_text = str(error)
        if _spoken_to(host.pk, now):
            # Too busy for a second login, perhaps. Whoever holds the link knows better whether it answers.
            Host.every.filter(pk=host.pk).update(due_at=now + timedelta(minutes=1))
            return items
    _keep_checklist(host.pk, items)
    book.set_status(host.pk, status, error_text, now)
    Host.every.filter(pk=host.pk).update(due_at=now + timedelta(minutes=1))
    tell()
    return items


def _spoken_to(host_id: int, now: datetime) -> bool:
    """Has a dispatcher's link heard from it lately?"""
    return Host.every.filter(pk=host_id, status=HostStatus.UP, seen_at__gte=now - SPOKEN_TO).exists()


def _look(host: Host, transport: paramiko.Transport, now: datetime) -> list[Item]:
    sha = install.put_runner(transport)
    before = time.time()
    answer = run(transport, install.command(sha, "probe"), timeout=PROBE_TIMEOUT_S)
    middle = (before + time.time()) / 2
    if not answer.stdout.strip():
        raise probe.NotAProbe(answer.stderr.decode("utf-8", "replace").strip() or "the probe said nothing")
    facts = probe.parse(answer.stdout)
    offset = facts.wall - middle
    clashes = _keep_facts(host.pk, facts, offset, now)
    judged = checklist.judge(facts, offset)
    return [*(i for i in judged if not (clashes and i.name == "GPUs")), *clashes[:1]]


@transaction.atomic
def _keep_facts(host_id: int, facts: probe.Facts, offset: float, now: datetime) -> list[Item]:
    """All but the boot id: a changed one is proof of a reboot, so only the holder of the lease writes it, in order."""
    Host.every.filter(pk=host_id).update(
        facts=json.loads(json.dumps(asdict(facts))),
        cpus=facts.cpus,
        memory_mb=facts.memory_mb,
        free_disk_mb=facts.disk.free_mb,
        clock_offset_s=offset,
    )
    if facts.gpu_error:
        return []  # it was not told which there are
    return [_claimed_elsewhere(gpu) for gpu in _keep_gpus(host_id, facts.gpus, now)]


def _keep_gpus(host_id: int, devices: Sequence[probe.Device], now: datetime) -> list[Gpu]:
    """Write the host's GPUs; returns those that another host in service says it has: one device is in one machine.

    A GPU that moved moves with its row once its old host is checked without it; nobody takes it by saying so.
    """
    Gpu.objects.filter(host_id=host_id).exclude(uuid__in=[d.uuid for d in devices]).update(present=False)
    others = Gpu.objects.filter(uuid__in=[d.uuid for d in devices], present=True, host__retired_at=None)
    clashes = {gpu.uuid: gpu for gpu in others.exclude(host_id=host_id).select_related("host")}
    _note_moves(host_id, [d.uuid for d in devices if d.uuid not in clashes], now)
    for device in devices:
        if device.uuid not in clashes:
            Gpu.objects.update_or_create(uuid=device.uuid, defaults=_columns(host_id, device))
    return list(clashes.values())


def _note_moves(host_id: int, uuids: Sequence[str], now: datetime) -> None:
    """A row moves with its device; that it was elsewhere before stays in the books of both."""
    moved = Gpu.objects.filter(uuid__in=uuids).exclude(host_id=host_id).select_related("host")
    for gpu in moved:
        book.note(gpu.host_id, "gpu_left", f"{gpu.uuid} was found in another machine.", "trainyard", now)
        came = f"{gpu.uuid} came from host {gpu.host.name} (added {gpu.host.created_at:%Y-%m-%d})."
        book.note(host_id, "gpu_came", came, "trainyard", now)


def _columns(host_id: int, device: probe.Device) -> dict[str, object]:
    return {
        "host_id": host_id,
        "index": device.index,
        "model": device.model,
        "memory_mb": device.memory_mb,
        "accelerator_type": device.accelerator_type,
        "present": True,
    }


def _claimed_elsewhere(gpu: Gpu) -> Item:
    text = f"{gpu.uuid} is reported by host {gpu.host.name} too."
    return Item("GPUs", False, text, f"Check {gpu.host.name} again if the GPU was moved here.")


def _keep_checklist(host_id: int, items: Sequence[Item]) -> None:
    Host.every.filter(pk=host_id).update(checklist=[item.as_row() for item in items])


def _finish(host: Host, items: Sequence[Item], now: datetime) -> None:
    rows = [item.as_row() for item in items]
    _keep_checklist(host.pk, items)
    fine = checklist.usable(rows)
    status = HostStatus.UP if fine else HostStatus.UNUSABLE
    book.set_status(host.pk, status, "" if fine else "; ".join(checklist.failures(rows)), now)
    Host.every.filter(pk=host.pk).update(seen_at=now, due_at=now + RECHECK)
