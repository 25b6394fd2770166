"""The tokens of people's scripts: make, list, revoke."""

from __future__ import annotations

import argparse

from django.db import transaction
from django.utils import timezone

from agents.infra.refusals import Refused
from console.auth import tokens
from console.auth.scopes import Grant, Scope
from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.commands.people import find_user
from console.models import ApiToken
from console.runtime import database_setup


def create(args: argparse.Namespace) -> int:
    """Print the token and nothing else, for `TOKEN=$(trainyard token create alice)`."""
    database_setup.prepare()
    now = timezone.now()
    user = find_user(args.user)
    project = project_named(args.project) if args.project else None
    grant = Grant(Scope(args.scope), project.pk if project else None)
    try:
        with transaction.atomic():
            _, token = tokens.create(
                user,
                args.name,
                now,
                actor=COMMAND_LINE,
                days=args.days,
                elevated=args.elevated,
                grant=grant,
            )
    except Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(token)
    return 0


def show(args: argparse.Namespace) -> int:
    """One line for each token that is not revoked: number, owner, name, end, last use, right to give rights,
    scope, project; separated by tabs for cut(1).
    """
    database_setup.prepare()
    now = timezone.now()
    rows = ApiToken.objects.filter(revoked_at=None).select_related("user", "project").order_by("expires_at")
    for row in rows.filter(user=find_user(args.user)) if args.user else rows:
        ends = f"{'expired' if row.expires_at <= now else 'until'} {row.expires_at:%Y-%m-%d}"
        used = f"used {row.last_used_at:%Y-%m-%d}" if row.last_used_at else "never used"
        rights = "elevated" if row.elevated else ""
        name = "".join(letter if letter.isprintable() else " " for letter in row.name)
        only = row.project.name if row.project else ""
        print("\t".join((str(row.pk), row.user.username, name, ends, used, rights, row.scope, only)))
    return 0


def revoke(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    row = ApiToken.objects.filter(pk=args.id).select_related("user").first()
    if row is None:
        raise CommandRefused(f"There is no token {args.id}. See: trainyard token list")
    with transaction.atomic():
        if not tokens.revoke(row.user, row.pk, now, COMMAND_LINE):
            raise CommandRefused(f"The token {args.id} was revoked before.")
    print(f"Revoked the token “{row.name}” of {row.user.username}.")
    return 0
