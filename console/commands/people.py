"""People, their roles, and the tokens of their scripts."""

from __future__ import annotations

import argparse
import getpass
import sys

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from console import database, setup, tokens
from console.commands import Refused
from jobs.models import Membership, Project


def add_user(words: argparse.Namespace) -> int:
    now = timezone.now()
    database.prepare(now)
    password = read_password(words.password_stdin)
    try:
        with transaction.atomic():
            setup.add_user(words.name, password, admin=words.admin, now=now)
    except ValidationError as problem:
        raise Refused(setup.words(problem)) from problem
    print(f"Added {words.name}{' (admin)' if words.admin else ''}.")
    return 0


def change_password(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    user = find_user(words.name)
    try:
        setup.set_password(user, read_password(words.password_stdin))
    except ValidationError as problem:
        raise Refused(setup.words(problem)) from problem
    print(f"Changed the password of {user.username}. Sessions that were open have ended.")
    return 0


def disable_user(words: argparse.Namespace) -> int:
    """The name stays in every history; pages, sockets and tokens are closed to it within seconds."""
    now = timezone.now()
    database.prepare(now)
    user = find_user(words.name)
    with transaction.atomic():
        admins = User.objects.select_for_update().filter(is_superuser=True, is_active=True)
        if user.is_superuser and not [one for one in admins if one.pk != user.pk]:
            raise Refused(
                f"{user.username} is the last admin. Add another first: trainyard user add NAME --admin"
            )
        User.objects.filter(pk=user.pk).update(is_active=False)
        revoked = tokens.revoke_all(user, now)
    print(f"Disabled {user.username}; {revoked} tokens revoked. Jobs go on: cancel those that should not.")
    return 0


def enable_user(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    user = find_user(words.name)
    User.objects.filter(pk=user.pk).update(is_active=True)
    print(f"Enabled {user.username}. Tokens that were revoked stay so.")
    return 0


def list_users(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
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


def set_member(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    user = find_user(words.name)
    project = Project.objects.filter(name=words.project).first()
    if project is None:
        raise Refused(f"There is no project {words.project!r}.")
    if words.role == "none":
        Membership.objects.filter(project=project, user=user).delete()
    else:
        Membership.objects.update_or_create(project=project, user=user, defaults={"role": words.role})
    print(f"{user.username} is now {words.role} in {project.name}.")
    return 0


def create_token(words: argparse.Namespace) -> int:
    """Prints the token and nothing else, for `TOKEN=$(trainyard token create alice)`."""
    now = timezone.now()
    database.prepare(now)
    _, token = tokens.create(find_user(words.user), words.name, now)
    print(token)
    return 0


def find_user(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise Refused(f"There is no user {name!r}. Add one with: trainyard user add {name}")
    return user


def read_password(from_stdin: bool) -> str:
    """Never an argument: arguments can be read by everyone on the machine."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise Refused("The two passwords differ.")
    else:
        raise Refused("No terminal to ask for a password. Give it on stdin with --password-stdin.")
    if not password:
        raise Refused("The password is empty.")
    return password
