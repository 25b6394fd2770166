"""Maintenance of hosts (cordon, drain, declare gone, stray runs) and recovery mode."""

from __future__ import annotations

import argparse
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from agents.hosts import data_address
from agents.infra import refusals
from agents.models import Host
from console.commands import CommandRefused, operator, project_named
from console.commands.hosts import printable
from console.forms.fields import DurationText
from console.runtime import database_setup
from jobs.host_sync import recovery_mode, strays
from jobs.maintenance import cordon_and_drain, logins


def cordon(args: argparse.Namespace) -> int:
    host = find_host(args.name)
    with transaction.atomic():
        cordon_and_drain.cordon(host, args.message, operator(), timezone.now())
    print(f"{host.name} takes no new jobs. What runs there goes on.")
    return 0


def drain(args: argparse.Namespace) -> int:
    host, now = find_host(args.name), timezone.now()
    try:
        wait_s = DurationText(required=False).clean(args.deadline)
        until = None if wait_s is None else now + timedelta(seconds=wait_s)
        with transaction.atomic():
            cordon_and_drain.drain(host, args.message, until, args.force, operator(), now)
    except ValidationError as problem:
        raise CommandRefused(f"--deadline: {problem.messages[0]}") from problem
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(f"{host.name} is being drained. See: trainyard host list")
    return 0


def contain(args: argparse.Namespace) -> int:
    host, switch = find_host(args.name), args.pid_namespaces == "on"
    try:
        with transaction.atomic():
            cordon_and_drain.set_pid_namespaces(host, switch, operator(), timezone.now())
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(f"New runs on {host.name} get {'PID namespaces of their own' if switch else 'no PID namespaces'}.")
    return 0


def network(args: argparse.Namespace) -> int:
    host = find_host(args.name)
    address = data_address.FOUND if args.data_address == "found" else args.data_address
    try:
        with transaction.atomic():
            cordon_and_drain.set_data_address(host, address, operator(), timezone.now())
    except refusals.Refused as refused:
        raise CommandRefused(f"--data-address: {refused.message}") from refused
    host.refresh_from_db()
    print(f"New runs on {host.name} are reached at {data_address.address_for_data(host)}.")
    return 0


def set_logins(args: argparse.Namespace) -> int:
    """Set the template, if one is given, and print the logins."""
    host = find_host(args.name)
    if args.template is not None or args.one:
        try:
            with transaction.atomic():
                logins.set_template(host, args.template or "", operator(), timezone.now())
        except refusals.Refused as refused:
            raise CommandRefused(refused.message) from refused
    template = logins.template_of(host)
    print(f"{host.name}: {template or 'one login for all projects'}")
    for row in Host.objects.filter(machine=host).select_related("project_login__project").order_by("user"):
        print(f"{row.project_login.project.name}\t{row.user}\t{row.status}\t{printable(row.last_error)}")
    return 0


def declare_gone(args: argparse.Namespace) -> int:
    host = find_login(args.name, args.project)
    called = f"{host.name}/{host.user}" if host.machine_id else host.name
    confirmed = host.name if args.confirm == called else args.confirm
    try:
        with transaction.atomic():
            cordon_and_drain.declare_gone(host, confirmed, operator(), timezone.now())
    except refusals.Refused as refused:
        hint = f" (--confirm {called})" if refused.field == "name" else ""
        raise CommandRefused(f"{refused.message}{hint}") from refused
    print(f"{called} is declared gone. What ran there is given up.")
    return 0


def act_on_run(args: argparse.Namespace) -> int:
    """Stop or dismiss a run that the host has and that belongs to no job."""
    host = find_login(args.name, args.project)
    try:
        with transaction.atomic():
            strays.ACTS[args.what](host, args.run, operator(), timezone.now())
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(f"{args.run} is {'to end' if args.what == 'stop' else 'not shown any more'}.")
    return 0


def uncordon(args: argparse.Namespace) -> int:
    host = find_host(args.name)
    with transaction.atomic():
        cordon_and_drain.uncordon(host, operator(), timezone.now())
    print(f"{host.name} is open to jobs.")
    return 0


def show_recovery(args: argparse.Namespace) -> int:
    """One line for each difference, separated by tabs for cut(1)."""
    database_setup.prepare()
    found = recovery_mode.differences()
    print(f"observing: {found.recovery.why}" if found.recovery else "nothing waits to be confirmed")
    for stray in found.strays:
        print(f"unknown\t{stray.run}\t{stray.host.name}\t{stray.phase}")
    for stray in found.unsealed:
        print(f"not ours\t{stray.run}\t{stray.host.name}\t{stray.phase}")
    for run in found.missing:
        print(f"missing\t{run.pk}\t{run.host.name}\t{run.phase}")
    for host in found.unheard if found.recovery else ():
        print(f"not heard\t{host.name}")
    return 0


def begin_recovery(args: argparse.Namespace) -> int:
    database_setup.prepare()
    try:
        with transaction.atomic():
            recovery_mode.begin(args.why, operator(), timezone.now())
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print("Trainyard only observes now. See: trainyard recovery show")
    return 0


def confirm_recovery(args: argparse.Namespace) -> int:
    database_setup.prepare()
    strays = [stray.run for stray in recovery_mode.differences().strays if stray.phase != "closed"]
    try:
        with transaction.atomic():
            recovery_mode.confirm(strays if args.stop_all else args.stop, operator(), timezone.now())
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print("Confirmed. Jobs go on.")
    return 0


def find_login(name: str, project: str = "") -> Host:
    """A host, or one of its logins: `gpu-1/train-vision`, or the host and a project."""
    name, slash, user = name.partition("/")
    host = find_host(name)
    if not slash and not project:
        return host
    logins_here = Host.objects.filter(machine=host).order_by("user")
    mine = logins_here.filter(project_login__project=project_named(project)) if project else logins_here
    found = mine.filter(user=user).first() if slash else mine.first()
    if found is None:
        users = ", ".join(f"{name}/{login}" for login in logins_here.values_list("user", flat=True))
        there = f"It has {users}." if users else "All projects have one login there."
        asked = f"login {user!r}" if slash else f"login of project {project}"
        raise CommandRefused(f"{name} has no {asked}. {there}")
    return found


def find_host(name: str) -> Host:
    database_setup.prepare()
    host = Host.machines.filter(name=name).first()
    if host is None:
        raise CommandRefused(f"There is no host {name!r} in service. See: trainyard host list")
    return host
