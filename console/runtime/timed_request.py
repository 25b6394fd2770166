"""A Celery message whose age is told by Trainyard's clock.

Celery asks the machine's clock. Where it is wrong, each message would be too old, and the worker would do nothing.
"""

from __future__ import annotations

from typing import Literal

from celery.worker.request import Request
from celery.worker.state import revoked

from agents.infra import clock


class TimedRequest(Request):
    def maybe_expire(self) -> Literal[True] | None:
        if self.expires and clock.now() > self.expires:
            revoked.add(self.id)
            return True
        return None
