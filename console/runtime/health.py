"""Checks whether Trainyard can work. People, load balancers and `trainyard up` (before it prints "ready") ask this."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agents import clock_keeper, time_doubt
from agents.models import Dispatcher
from jobs.models import Tick

# A sweep is due every TICK_S. Half a minute without one is not a short delay any more. Nor is half a minute in which a
# thread of a dispatcher is at one piece of work, or a piece of work waits for a thread.
LATE_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Health:
    """`broken`: pages do not work (503). `late`: pages work, but jobs wait (200)."""

    broken: tuple[str, ...]
    late: tuple[str, ...]
    sweep_age_s: float | None
    dispatchers: int
    # How often a clock was set in the last day, and by how much Trainyard's time is ahead of this machine's clock.
    clock_jumps: int = 0
    clock_ahead_s: float = 0.0
    # Whether nothing is deleted by its age, because the time may be wrong.
    ages_in_doubt: bool = False
    # The age of the oldest piece of work of a dispatcher.
    stuck_s: float = 0.0

    @property
    def status(self) -> str:
        return "broken" if self.broken else "late" if self.late else "ok"


def check(now: datetime) -> Health:
    broken = tuple(
        f"{name}: {problem}"
        for name, ask in (("database", database_problem), ("broker", broker_problem))
        if (problem := ask())
    )
    if any(line.startswith("database") for line in broken):
        return Health(broken, (), None, 0)
    tick = Tick.objects.filter(name="sweep").first()
    dispatchers = list(Dispatcher.objects.filter(seen_at__gte=now - LATE_AFTER))
    stuck_s = max((each.stuck_s for each in dispatchers), default=0.0)
    late = []
    if tick is None or now - tick.at > LATE_AFTER:
        late.append("worker: no sweep lately. Is a worker process running?")
    if not dispatchers:
        late.append("dispatcher: none seen lately. Is a dispatcher process running?")
    if stuck_s > LATE_AFTER.total_seconds():
        late.append(f"dispatcher: a piece of work has taken {stuck_s:.0f} s. Its log names the host.")
    if any(each.threads_gone for each in dispatchers):
        late.append("dispatcher: a worker thread has died. Restart the dispatcher, and report its log.")
    age_s = (now - tick.at).total_seconds() if tick else None
    jumps, ahead_s = len(clock_keeper.recent_jumps(now)), round(clock_keeper.ahead_s(), 1)
    in_doubt = bool(time_doubt.told(now))
    return Health(broken, tuple(late), age_s, len(dispatchers), jumps, ahead_s, in_doubt, stuck_s)


def database_problem() -> str:
    """The name of the database's error, or an empty text."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as problem:
        return type(problem).__name__
    return ""


def broker_problem() -> str:
    try:
        _client(settings.REDIS_URL).ping()
    except (redis.RedisError, OSError) as problem:
        return type(problem).__name__
    return ""


@lru_cache(maxsize=1)
def _client(url: str) -> redis.Redis:
    """A client with few connections, shared by all requests: load balancers ask every second, and anybody may ask.

    A request that finds no free connection waits for one: many requests at one moment do not make the broker broken.
    """
    pool = redis.BlockingConnectionPool.from_url(
        url, socket_connect_timeout=2, socket_timeout=2, max_connections=4, timeout=2
    )
    return redis.Redis(connection_pool=pool)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Anybody may ask, so the answer has states and ages, but no addresses and no messages of drivers."""
    health = check(timezone.now())
    body = {
        "status": health.status,
        "broken": health.broken,
        "late": health.late,
        "sweep_age_s": health.sweep_age_s,
        "dispatchers": health.dispatchers,
        "clock_jumps": health.clock_jumps,
        "clock_ahead_s": health.clock_ahead_s,
        "ages_in_doubt": health.ages_in_doubt,
        "stuck_s": health.stuck_s,
    }
    return JsonResponse(body, status=503 if health.broken else 200)
