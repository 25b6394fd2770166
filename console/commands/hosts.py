"""Hosts: print the public key, add a host and print its checklist, list the hosts."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from django.utils import timezone

from agents.hosts import checklist, enrolment, misbehaviour, pasted_keys
from agents.hosts.checklist import CheckItem
from agents.infra.refusals import Refused
from agents.models import Host
from agents.ssh import keys
from agents.ssh.dial import DialError
from console.commands import CommandRefused, operator
from console.presenters.hosts import offered_keys
from console.runtime import database_setup
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.maintenance import edit_host, enrol_host

# The most machines (jump hosts and the host) on the way to a host. Each one offers a key of its own.
MAX_KEYS = 9
MARKS = {True: "ok  ", False: "FAIL", None: "note"}


def key(args: argparse.Namespace) -> int:
    """Print the line for authorized_keys and nothing else."""
    database_setup.prepare()
    print(keys.public_line())
    return 0


def add(args: argparse.Namespace) -> int:
    """Add a host, accept its key, check it. Run again for the same machine, it continues where it stopped."""
    database_setup.prepare()
    actor = operator()
    try:
        host = existing_host(args) or enrol_host.add_host(
            name=args.name,
            address=args.address,
            port=args.ssh_port,
            user=args.user,
            location=args.location,
            jump=args.jump,
            actor=actor,
            now=timezone.now(),
        )
        misbehaviour.reopen(host.pk, timezone.now())
        accept_keys(host, args, actor)
        items = enrolment.check_host(host.pk, timezone.now())
    except Refused as refused:
        raise CommandRefused(printable(refused.message)) from refused
    except DialError as problem:
        raise CommandRefused(printable(str(problem))) from problem
    print_checklist(items)
    if not checklist.is_usable([item.as_row() for item in items]):
        raise CommandRefused(f"{args.name} is not usable yet. Mend what failed, then run this command again.")
    print(f"{args.name} is usable.")
    return 0


def existing_host(args: argparse.Namespace) -> Host | None:
    return Host.machines.filter(
        name=args.name, address=args.address, port=args.ssh_port, user=args.user, jump=args.jump
    ).first()


def accept_keys(host: Host, args: argparse.Namespace, actor: str) -> None:
    """Accept one key for each machine on the way. An unexpected key ends the command before anything is sent."""
    for _ in range(MAX_KEYS):
        offered = enrolment.fetch_host_key(host.pk, timezone.now())
        if not offered:
            return
        if not args.accept_first_key and offered not in args.accept_key:
            raise CommandRefused(
                f"The host shows the key {offered}, not {' or '.join(args.accept_key)}. Nothing was sent to it."
            )
        if host.pinned_key and args.accept_first_key:
            raise CommandRefused(
                f"The host's key has changed to {offered}. If that is right, give --accept-key {offered}"
            )
        enrol_host.accept_host_key(host, offered, actor, timezone.now())
        print(f"Accepted the host key {offered}.")
        host.refresh_from_db()
    raise CommandRefused("The host keeps showing new keys.")


def accept_many_keys(args: argparse.Namespace) -> int:
    """Accept the keys that equal those of a text. A line for each host: name, fingerprint, verdict, what was done."""
    database_setup.prepare()
    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(errors="replace")
        page = offered_keys.compared(Host.machines.all(), pasted_keys.parse(text))
    except Refused as refused:
        raise CommandRefused(printable(refused.message)) from refused
    except OSError as problem:
        raise CommandRefused(f"{args.file} cannot be read: {problem.strerror}") from problem
    wanted = [row for row in page.keys if row.is_equal and row.key.name in {*args.changed, *_new(page)}]
    asked = [(row.key.row, row.key.fingerprint) for row in wanted]
    accepted, _ = enrol_host.accept_host_keys(asked, operator(), timezone.now())
    done = {host.pk for host in accepted}
    for row in page.keys:
        end = "accepted" if row.key.row.pk in done else "not accepted"
        print("\t".join((row.key.name, row.key.fingerprint, row.verdict, end)))
    if len(done) < len(page.keys):
        raise CommandRefused(f"{len(page.keys) - len(done)} of {len(page.keys)} keys still wait.")
    return 0


def _new(page: offered_keys.KeyPage) -> set[str]:
    """The hosts that had no key before."""
    return {row.key.name for row in page.keys if not row.key.accepted}


def edit(args: argparse.Namespace) -> int:
    """Change how a host is reached, and its location. What is not given stays."""
    database_setup.prepare()
    row = Host.machines.select_related("location").filter(name=args.name).first()
    if row is None:
        raise CommandRefused(f"There is no host {args.name}.")
    seen = edit_host.Place.of(row)
    asked = {"address": args.address, "port": args.ssh_port, "user": args.user, "jump": args.jump}
    way = replace(seen.way, **{name: value for name, value in asked.items() if value is not None})
    wanted = edit_host.Place(way, seen.location if args.location is None else args.location)
    try:
        changed = edit_host.edit_host(row, wanted, seen, args.accept_jump_key, operator(), timezone.now())
    except Refused as refused:
        raise CommandRefused(printable(refused.message)) from refused
    print(f"{row.name} is changed." if changed else f"{row.name} is so already.")
    return 0


def list_hosts(args: argparse.Namespace) -> int:
    """One line for each host: name, address, location, status, capacity, maintenance, error; separated by tabs for
    cut(1).
    """
    database_setup.prepare()
    for host in Host.machines.select_related("location", "maintenance").prefetch_related("gpus"):
        gpus = sum(gpu.present for gpu in host.gpus.all())
        where = f"{host.user}@{host.address}:{host.port}"
        cells = (host.name, where, host.location.name, host.status, f"{host.cpus} CPUs", f"{gpus} GPUs")
        maintenance = maintenance_of(host)
        closed = "cordoned" if maintenance.cordoned else ""
        if maintenance.drain_at:
            closed = "drained" if maintenance.drained_at else "draining"
        closed = "gone" if maintenance.gone_at else closed
        print("\t".join((*cells, closed, printable(host.last_error))))
    return 0


def print_checklist(items: Iterable[CheckItem]) -> None:
    for item in items:
        print(f"{MARKS[item.ok]} {item.name}: {printable(item.text)}")
        if not item.ok and item.fix:
            print(f"     Fix: {printable(item.fix)}")


def printable(text: str) -> str:
    """Text from a host, without control characters that an operator's terminal would obey."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()
