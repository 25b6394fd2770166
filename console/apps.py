"""Loads the Celery application in every process that sets up Django, so that a web process can send hints. Times are
read from PostgreSQL in our way."""

from __future__ import annotations

from django.apps import AppConfig

from console.runtime import backend_settings, checks
from console.runtime.celery_app import app as celery_app

__all__ = ["ConsoleConfig", "celery_app", "checks"]


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        backend_settings.read_times()
