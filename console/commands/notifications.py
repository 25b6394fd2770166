"""Notification targets: list them, and confirm an e-mail address in place of its owner."""

from __future__ import annotations

import argparse

from django.db import transaction
from django.utils import timezone

from agents.infra import refusals
from console.commands import COMMAND_LINE, CommandRefused
from console.runtime import database_setup
from jobs.models import NotificationTarget
from jobs.notifications import email_opt_in


def list_targets(args: argparse.Namespace) -> int:
    """One line for each target, separated by tabs for cut(1)."""
    database_setup.prepare()
    for row in NotificationTarget.objects.select_related("user", "project"):
        whose = f"project {row.project.name}" if row.project else f"user {row.user}"
        print(
            f"{row.pk}\t{whose}\t{row.way}\t{row.shown}\t{'told' if row.confirmed_at else 'waits for its owner'}"
        )
    return 0


def vouch(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    row = NotificationTarget.objects.select_related("user", "project").filter(pk=args.id).first()
    if row is None:
        raise CommandRefused(f"There is no address {args.id}. See: trainyard notice list")
    try:
        with transaction.atomic():
            email_opt_in.vouch(row, COMMAND_LINE, now)
    except refusals.Refused as refused:
        raise CommandRefused(refused.message) from refused
    print(f"{row.shown} will be notified.")
    return 0
