"""Ends kept shells whose owner has lost the right, has logged out, or whose run is over, also while nobody watches.

A socket ends when its own person loses the right. The shell itself is on its host and would go on. So one web process
at a time looks at all kept shells, notes in their records which have to end, and then has their hosts end them: over a
connection of its own, again and again until the host has answered. A host that cannot be reached ends a shell by
itself when nobody has been there for its time.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.texts import said
from agents.ssh import keys, pty
from agents.ssh.dial import DialError
from agents.ssh.targets import Target
from console.auth import access, sessions
from console.auth.session_store import KEY_LETTERS
from console.models import ApiToken, Session
from jobs import shells
from jobs.models import ShellSession
from jobs.sweep import claim

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=2)
# So many hosts are told at the same time; one that does not answer delays no other.
THREADS = 8
STOP_S = 10.0
NOT_ALLOWED = said("Its owner may not do this any more.")


class ShellGuard:
    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, "shell-end")
        self._ending: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="shell-guard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_S)
        self.stop_pool()

    def stop_pool(self) -> None:
        """Wait for the hosts that are being told."""
        self._pool.shutdown()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY.total_seconds() / 2):
            try:
                self.look(timezone.now())
            except DATABASE_UNAVAILABLE as problem:
                log.debug("The rights of shells could not be looked at: %s", problem)
            except Exception:
                log.exception("The rights of shells could not be looked at")
            finally:
                connection.close()

    def look(self, now: datetime) -> None:
        """Judge all kept shells, and have those end that must. Nothing is written while there are none."""
        kept = shells.kept_open()
        if not kept or not claim("shell guard", EVERY, now):
            return
        rights: dict[tuple[str, int | None, int], str] = {}
        for session in kept:
            asked = (session.login, session.user_id, session.run.job_id)
            if session.close_wanted_at is None:
                if asked not in rights:
                    rights[asked] = why_lost(session, now)
                if reason := rights[asked] or shells.why_close(session, now, renew=False):
                    shells.want_close(session, reason, now)
                    session.close_wanted_at, session.close_reason = now, reason
            if session.close_wanted_at is not None and session.pk not in self._ending:
                self._ending.add(session.pk)
                self._pool.submit(self._end, session)

    def _end(self, session: ShellSession) -> None:
        try:
            end_on_host(session)
            shells.record_closed(session, session.close_reason, timezone.now())
        except (DialError, OSError, keys.KeyUnreadable) as problem:
            log.info("The shell %s on run %s is not ended yet: %s", session.pk, session.run_id, problem)
        except Exception:
            log.exception("The shell %s could not be ended", session.pk)
        finally:
            self._ending.discard(session.pk)
            connections.close_all()


def why_lost(session: ShellSession, now: datetime) -> str:
    """Why its owner may not have the shell any more; empty if they may."""
    user = owner_of(session, now)
    if user is None:
        return sessions.LOGGED_OUT
    return "" if access.can(user, "shell", session.run) else NOT_ALLOWED


def owner_of(session: ShellSession, now: datetime) -> User | None:
    """The owner, while the login by which the shell was opened holds."""
    if session.user is None:
        return None
    if row := Session.objects.filter(user=session.user, pk=session.login[:KEY_LETTERS]).first():
        return sessions.user_of_row(row)
    valid = ApiToken.objects.filter(digest=session.login, revoked_at=None, expires_at__gt=now)
    return session.user if session.user.is_active and valid.exists() else None


def end_on_host(session: ShellSession) -> None:
    """Have the host end a shell. It may be gone already. Raises DialError or OSError when the host did not answer."""
    request = {
        "deployment": settings.DEPLOYMENT,
        "run": session.run_id,
        "shell": session.key,
        "client": "console-guard",
        "viewer": {"name": "", "types": False},
    }
    try:
        shell = pty.open_shell(Target.of(session.run.host), keys.private_key(), request)
    except pty.ShellGone:
        return
    try:
        shell.end(session.close_reason)
        shell.wait_for_end()
    finally:
        shell.close()
