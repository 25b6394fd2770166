"""People and their roles in projects."""

from __future__ import annotations

import argparse
import getpass
import sys

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from agents.infra import refusals
from console.auth import accounts, session_list
from console.auth.login import login_steps
from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.runtime import database_setup
from jobs.models import Membership
from jobs.projects import members


def add_user(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    password = None if args.invite else read_password(args.password_stdin)
    try:
        with transaction.atomic():
            user = accounts.add(
                args.name,
                password=password,
                admin=args.admin,
                actor=COMMAND_LINE,
                now=now,
                member=not args.no_project,
            )
    except ValidationError as problem:
        raise CommandRefused(accounts.error_text(problem)) from problem
    print(f"Added {args.name}{' (admin)' if args.admin else ''}.")
    return print_invitation(user) if args.invite else 0


def invite_user(args: argparse.Namespace) -> int:
    """Print a one-time link with which a person sets a password."""
    database_setup.prepare()
    return print_invitation(find_user(args.name))


def print_invitation(user: User) -> int:
    now = timezone.now()
    if not user.is_active:
        raise CommandRefused(
            f"{user.username} is disabled. Enable first: trainyard user enable {user.username}"
        )
    with transaction.atomic():
        token = accounts.invite(user, COMMAND_LINE, now)
    here = settings.TRAINYARD.url or "(the address of this Trainyard)"
    print(f"{user.username} sets a password here, once, within {accounts.INVITED_FOR.days} days:")
    print(f"{here}/invited/{token}")
    return 0


def change_password(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.name)
    # Before the transaction, so that no lock is held while a person types.
    password = read_password(args.password_stdin)
    try:
        with transaction.atomic():
            revoked = accounts.set_password(user, password, COMMAND_LINE, now)
    except ValidationError as problem:
        raise CommandRefused(accounts.error_text(problem)) from problem
    print(f"Changed the password of {user.username}. Open sessions have ended; {revoked} tokens are revoked.")
    return 0


def disable_user(args: argparse.Namespace) -> int:
    """Disable a person. The name stays in every history; pages, sockets and tokens stop working within seconds."""
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.name)
    try:
        with transaction.atomic():
            revoked = accounts.disable(user, COMMAND_LINE, now)
    except refusals.Refused as refused:
        raise CommandRefused(f"{refused.message} (trainyard user add NAME --admin)") from refused
    print(f"Disabled {user.username}; {revoked} tokens revoked. Jobs go on: cancel those that should not.")
    return 0


def enable_user(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.name)
    with transaction.atomic():
        accounts.enable(user, COMMAND_LINE, now)
    print(f"Enabled {user.username}. Sessions that ended and tokens that were revoked stay so.")
    return 0


def delete_user(args: argparse.Namespace) -> int:
    """Delete the account of a disabled person. Jobs, histories and the audit keep the name."""
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.name)
    try:
        with transaction.atomic():
            accounts.delete(user, COMMAND_LINE, now)
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(f"Deleted {user.username}. Jobs and histories keep the name.")
    return 0


def logout_user(args: argparse.Namespace) -> int:
    """Log a person out of all browsers. Their tokens stay."""
    database_setup.prepare()
    user = find_user(args.name)
    with transaction.atomic():
        ended, _ = session_list.end_everywhere(user, COMMAND_LINE, timezone.now())
    sessions = "1 session" if ended == 1 else f"{ended} sessions"
    print(f"Ended {sessions} of {user.username}. Tokens stay: trainyard token list {user.username}")
    return 0


def reset_second_factor_user(args: argparse.Namespace) -> int:
    """For a person who has lost the phone and the recovery codes."""
    database_setup.prepare()
    user = find_user(args.name)
    if not login_steps.reset(user, COMMAND_LINE, timezone.now()):
        raise CommandRefused(f"{user.username} has no second factor.")
    print(f"{user.username} logs in without a second factor now.")
    return 0


def list_users(args: argparse.Namespace) -> int:
    database_setup.prepare()
    roles: dict[int, list[str]] = {}
    for row in Membership.objects.select_related("project").order_by("project__name"):
        roles.setdefault(row.user_id, []).append(f"{row.project.name}:{row.role}")
    for user in User.objects.order_by("username"):
        word = "admin" if user.is_superuser else "user"
        print(
            "\t".join(
                (user.username, word if user.is_active else "disabled", ",".join(roles.get(user.pk, [])))
            )
        )
    return 0


def set_member(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.name)
    project = project_named(args.project)
    with transaction.atomic():
        if args.role != "none":
            members.set_role(project, user, args.role, COMMAND_LINE, now)
        elif Membership.objects.filter(project=project, user=user).exists():
            members.remove(project, user, COMMAND_LINE, now)
    print(f"{user.username} is now {args.role} in {project.name}.")
    return 0


def find_user(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise CommandRefused(f"There is no user {name!r}. Add one with: trainyard user add {name}")
    return user


def read_password(from_stdin: bool) -> str:
    """Read a password from stdin or the terminal.

    It is never an argument, because all users of the machine can see those.
    """
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise CommandRefused("The two passwords differ.")
    else:
        raise CommandRefused("No terminal to ask for a password. Give it on stdin with --password-stdin.")
    if not password:
        raise CommandRefused("The password is empty.")
    return password
