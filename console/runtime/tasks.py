"""The doors' own Celery tasks: the answer to `trainyard up`, which asks whether a worker still hears."""

from __future__ import annotations

import redis
from celery import shared_task
from django.conf import settings


def echo_key(name: str) -> str:
    return f"trainyard:echo:{name}"


@shared_task(name="console.runtime.tasks.echo")
def echo(name: str, sent_at: float) -> None:
    """A process can live and be deaf: only a message that went through its queue and its pool proves otherwise."""
    with redis.from_url(settings.REDIS_URL) as client:
        client.set(echo_key(name), sent_at, ex=3600)
