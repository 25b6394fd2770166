"""Sending notices, in threads of the worker: a receiver that does not answer holds up those of its owner only.

Nothing that people wrote is read or rendered here: what goes out is JSON and plain text made of rows, and of what comes
back the first two thousand bytes are shown as they are.
"""

from __future__ import annotations

import json
import logging
import smtplib
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import close_old_connections
from django.utils import timezone

from agents.infra.secrets import Unreadable, decrypt
from jobs.models import Notice
from jobs.models.notices import Way
from jobs.notifications import notices, webhook
from jobs.notifications.webhook import Answer
from jobs.rules.notifications import PROOF

log = logging.getLogger(__name__)

THREADS = 8
NO_MAIL = "This deployment sends no e-mail: its operator has not set TRAINYARD_SMTP_URL."
BROKEN = "Trainyard could not send it. Its operator finds the reason in the worker's log."


class NotificationSender:
    """A line of notices for each owner, without doubles, and daemon threads that start with the first notice.

    Owners take turns, and each has one notice under way: who gives twenty addresses that never answer waits for them
    himself.
    """

    def __init__(self) -> None:
        self.lines: dict[str, deque[int]] = {}  # of owners who wait, or whose notice is under way
        self.ready: deque[str] = deque()
        self.known: set[int] = set()
        self.changed = threading.Condition()
        self.started = False

    def put(self, ids: list[int]) -> None:
        owners = notices.owners(ids)
        with self.changed:
            for notice_id in ids:
                if notice_id in owners and notice_id not in self.known:
                    self.known.add(notice_id)
                    self._line_up(owners[notice_id], notice_id)
            if not self.started:
                self.started = True
                for _ in range(THREADS):
                    threading.Thread(target=self.work, name="postman", daemon=True).start()

    def _line_up(self, owner: str, notice_id: int) -> None:
        if owner not in self.lines:
            self.lines[owner] = deque()
            self.ready.append(owner)
            self.changed.notify()
        self.lines[owner].append(notice_id)

    def work(self) -> None:
        while True:
            owner, notice_id = self.next()
            try:
                deliver(notice_id, timezone.now())
            except Exception:
                log.exception("notice %s could not be sent; it is tried again", notice_id)
            finally:
                close_old_connections()
                self.done(owner, notice_id)

    def next(self) -> tuple[str, int]:
        with self.changed:
            while not self.ready:
                self.changed.wait()
            owner = self.ready.popleft()
            return owner, self.lines[owner].popleft()

    def done(self, owner: str, notice_id: int) -> None:
        with self.changed:
            self.known.discard(notice_id)
            if self.lines[owner]:
                self.ready.append(owner)
                self.changed.notify()
            else:
                del self.lines[owner]


def deliver(notice_id: int, now: datetime) -> None:
    """Take it, send it with no transaction open, write down what was answered."""
    notice = notices.take(notice_id, now)
    if notice is None:
        return
    try:
        answer = send(notice, decrypt(notice.target.sealed))
    except Unreadable as problem:
        answer = Answer(False, str(problem), final=True)
    except Exception:
        # Counted like any try: what can never be sent is given up one day, and says so.
        log.exception("notice %s could not be sent", notice_id)
        answer = Answer(False, BROKEN)
    notices.record_result(notice, answer.taken, answer.words, answer.final, timezone.now())


def send(notice: Notice, secret: Mapping[str, Any]) -> Answer:
    told: Mapping[str, Any] = notice.text
    if notice.event == PROOF:
        told = {**told, "url": secret.get("link", "")}
    if notice.target.way == Way.MAIL:
        return _mail(secret["address"], told)
    if notice.target.way == Way.SLACK:
        body: dict[str, object] = {"text": slack_text(told)}
        return _post(secret["address"], body, {})
    body = {"type": f"job.{notice.event}", "timestamp": notice.made_at.isoformat(), **told}
    data = json.dumps(body).encode()
    headers = webhook.signed(
        secret["secret"], f"notice-{settings.DEPLOYMENT}-{notice.pk}", int(time.time()), data
    )
    return _post_bytes(secret["address"], data, headers)


def _post(url: str, body: Mapping[str, object], headers: Mapping[str, str]) -> Answer:
    return _post_bytes(url, json.dumps(body).encode(), headers)


def _post_bytes(url: str, data: bytes, headers: Mapping[str, str]) -> Answer:
    headers = {"Content-Type": "application/json", **headers}
    return webhook.post(url, data, headers, settings.TRAINYARD.notify_private)


def slack_text(told: Mapping[str, Any]) -> str:
    """Slack's own escapes, so that no name of a job becomes a link or calls a channel."""

    def plain(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    link = f"\n{told['url']}" if told.get("url") else ""
    return f"*{plain(told['title'])}*\n{plain(told['text'])}{link}"


def _mail(address: str, told: Mapping[str, Any]) -> Answer:
    if not settings.EMAIL_HOST:
        return Answer(False, NO_MAIL, final=True)
    subject = " ".join(told["title"].split())[:200]
    text = "\n\n".join(part for part in (told["text"], told.get("url")) if part)
    try:
        EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [address]).send()
    except smtplib.SMTPRecipientsRefused as refused:
        code, words = next(iter(refused.recipients.values()), (0, b""))
        return Answer(False, f"{code} {words.decode('utf-8', 'replace')}", final=500 <= code < 600)
    except smtplib.SMTPResponseException as problem:
        said: bytes | str = problem.smtp_error
        shown = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return Answer(False, f"{problem.smtp_code} {shown}")
    except (OSError, smtplib.SMTPException) as problem:
        return Answer(False, f"No answer from the mail server: {problem or type(problem).__name__}"[:500])
    return Answer(True, "The mail server took it.")


notification_sender = NotificationSender()
