"""What an admin does with a host in service."""

from __future__ import annotations

import argparse
import getpass

from django.db import transaction
from django.utils import timezone

from agents.models import Host
from console import database
from console.commands import Refused
from jobs import maintenance


def cordon(words: argparse.Namespace) -> int:
    host = find(words.name)
    with transaction.atomic():
        maintenance.cordon(host, words.message, actor(), timezone.now())
    print(f"{host.name} takes no new jobs. What runs there goes on.")
    return 0


def uncordon(words: argparse.Namespace) -> int:
    host = find(words.name)
    with transaction.atomic():
        maintenance.uncordon(host, actor(), timezone.now())
    print(f"{host.name} is open to jobs.")
    return 0


def actor() -> str:
    return f"{getpass.getuser()} (command line)"


def find(name: str) -> Host:
    database.prepare(timezone.now())
    host = Host.objects.filter(name=name).first()
    if host is None:
        raise Refused(f"There is no host {name!r} in service. See: trainyard host list")
    return host
