"""Django's flush, for a database whose triggers guard the history: drop the triggers, flush, create the triggers
and the first rows again."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.commands.flush import Command as Flush
from django.db import connections
from django.utils import timezone

from jobs.models.first_rows import make_first_rows
from jobs.models.guards import drop_guards, make_guards


class Command(Flush):
    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        drop_guards(connection)
        try:
            super().handle(**options)
        finally:
            make_guards(connection)
        make_first_rows(apps, timezone.now())
