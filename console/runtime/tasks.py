"""The console's own Celery tasks: housekeeping, and an echo that shows that a worker still takes messages."""

from __future__ import annotations

import redis
from celery import shared_task
from django.conf import settings
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from console.auth import housekeeping


def echo_key(name: str) -> str:
    return f"trainyard:echo:{name}"


@shared_task(name="console.runtime.tasks.tidy", throws=DATABASE_UNAVAILABLE)
def tidy() -> None:
    housekeeping.tidy(timezone.now())


@shared_task(name="console.runtime.tasks.echo")
def echo(name: str, sent_at: float) -> None:
    """Record that the worker answers. Only a message through its queue and its pool proves that it is not stuck."""
    with redis.from_url(settings.REDIS_URL) as client:
        client.set(echo_key(name), sent_at, ex=3600)
