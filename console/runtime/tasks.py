"""The console's own Celery task: an echo, with which `trainyard up` checks that a worker still takes messages."""

from __future__ import annotations

import redis
from celery import shared_task
from django.conf import settings


def echo_key(name: str) -> str:
    return f"trainyard:echo:{name}"


@shared_task(name="console.runtime.tasks.echo")
def echo(name: str, sent_at: float) -> None:
    """Record that the worker answers. Only a message through its queue and its pool proves that it is not stuck."""
    with redis.from_url(settings.REDIS_URL) as client:
        client.set(echo_key(name), sent_at, ex=3600)
