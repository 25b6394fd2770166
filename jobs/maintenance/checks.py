"""Runs the checklists of hosts in threads of their own.

A check of a host that does not answer takes a minute. In Celery's pool a handful of such checks would stop every
decision; here they delay each other only. A check that is lost with its process is due again by the host's row.
"""

from __future__ import annotations

import logging
import queue
import threading

from django.db import close_old_connections
from django.utils import timezone

from agents.hosts import enrolment
from agents.models import Host
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

# Each thread may wait for an unreachable host. More threads would only load sshd and the database.
THREADS = 8


class Checker:
    """A queue without duplicates, and daemon threads that start with the first check. They do not keep the process
    alive."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.known: set[int] = set()
        self.lock = threading.Lock()
        self.started = False

    def put(self, host_id: int) -> None:
        with self.lock:
            if host_id in self.known:
                return
            self.known.add(host_id)
            self.waiting.put(host_id)
            if not self.started:
                self.started = True
                for _ in range(THREADS):
                    threading.Thread(target=self.work, name="check", daemon=True).start()

    def work(self) -> None:
        while True:
            host_id = self.waiting.get()
            with self.lock:
                # A hint that comes after this may be about something new: the host is checked again.
                self.known.discard(host_id)
            try:
                check(host_id)
            except Exception:
                log.exception("the check of host %s failed", host_id)
            finally:
                close_old_connections()


def check(host_id: int) -> None:
    if not Host.objects.filter(pk=host_id).exists():
        return
    topics = [f"host:{host_id}", "hosts"]
    enrolment.check_host(host_id, timezone.now(), on_change=lambda: announce.send_now(topics))
    hints.schedule()
    hints.hosts([host_id])


checker = Checker()
