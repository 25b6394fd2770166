"""Send notifications, in threads of the worker. A receiver that does not answer delays only those of its own owner.

Nothing that people wrote is parsed or rendered here: messages are JSON and plain text made of rows, and the first two
thousand bytes of an answer are shown as they are.
"""

from __future__ import annotations

import json
import logging
import smtplib
import threading
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import close_old_connections
from django.utils import timezone, translation

from agents.infra import clock
from agents.infra.secrets import SecretUnreadable, decrypt_fields
from agents.infra.sentences import shown
from agents.infra.texts import said
from jobs.models import Notification
from jobs.models.notifications import Way
from jobs.notifications import delivery, unsubscribe, webhook
from jobs.notifications.webhook import Answer
from jobs.rules.notifications import ACCOUNT, CONFIRMATION

log = logging.getLogger(__name__)

THREADS = 8
# Programs read what webhooks get: it is English.
FOR_PEOPLE = (Way.MAIL, Way.SLACK)
NO_MAIL = said("This deployment sends no e-mail: its operator has not set TRAINYARD_SMTP_URL.")
BROKEN = said("Trainyard could not send it. Its operator finds the reason in the worker's log.")


class NotificationSender:
    """A queue of notifications for each owner, without duplicates, and daemon threads that start with the first one.

    Owners take turns, and each owner has one notification in sending at a time: an owner of twenty addresses that never
    answer delays nobody else.
    """

    def __init__(self) -> None:
        # Only owners with notifications that wait or are being sent.
        self.queues: dict[str, deque[int]] = {}
        self.ready: deque[str] = deque()
        self.queued: set[int] = set()
        self.changed = threading.Condition()
        self.started = False

    def put(self, ids: list[int]) -> None:
        owners = delivery.owners(ids)
        with self.changed:
            for notification_id in ids:
                if notification_id in owners and notification_id not in self.queued:
                    self.queued.add(notification_id)
                    self._enqueue(owners[notification_id], notification_id)
            if not self.started:
                self.started = True
                for _ in range(THREADS):
                    threading.Thread(target=self.work, name="notification-sender", daemon=True).start()

    def _enqueue(self, owner: str, notification_id: int) -> None:
        if owner not in self.queues:
            self.queues[owner] = deque()
            self.ready.append(owner)
            self.changed.notify()
        self.queues[owner].append(notification_id)

    def work(self) -> None:
        while True:
            owner, notification_id = self.next()
            try:
                deliver(notification_id, timezone.now())
            except Exception:
                log.exception("notification %s could not be sent; it will be tried again", notification_id)
            finally:
                close_old_connections()
                self.done(owner, notification_id)

    def next(self) -> tuple[str, int]:
        with self.changed:
            while not self.ready:
                self.changed.wait()
            owner = self.ready.popleft()
            return owner, self.queues[owner].popleft()

    def done(self, owner: str, notification_id: int) -> None:
        with self.changed:
            self.queued.discard(notification_id)
            if self.queues[owner]:
                self.ready.append(owner)
                self.changed.notify()
            else:
                del self.queues[owner]


def deliver(notification_id: int, now: datetime) -> None:
    """Claim one notification, send it with no transaction open, and record the answer."""
    notification = delivery.claim(notification_id, now)
    if notification is None:
        return
    try:
        answer = send(notification, decrypt_fields(notification.target.sealed))
    except SecretUnreadable as problem:
        answer = Answer(False, problem.args[0], final=True)
    except Exception:
        # This counts as a try, so that a notification that can never be sent is given up, and its history says so.
        log.exception("notification %s could not be sent", notification_id)
        answer = Answer(False, BROKEN)
    delivery.record_result(notification, answer.taken, answer.text, answer.final, timezone.now())


def send(notification: Notification, secret: Mapping[str, Any]) -> Answer:
    message: Mapping[str, Any] = notification.text
    if notification.event == CONFIRMATION:
        message = {**message, "url": secret.get("link", "")}
    if notification.target.way in FOR_PEOPLE:
        with translation.override(notification.target.language or settings.LANGUAGE_CODE):
            message = {**message, "title": shown(message["title"]), "text": shown(message["text"])}
            message["stop"] = shown(_how_to_stop(notification))
    if notification.target.way == Way.MAIL:
        # The letter that asks whether letters are wanted says itself how they are not.
        asks = notification.event == CONFIRMATION
        return _mail(secret["address"], message, {} if asks else unsubscribe.headers(notification.target))
    if notification.target.way == Way.SLACK:
        body: dict[str, object] = {"text": slack_text(message)}
        return _post(secret["address"], body, {})
    subject = notification.event if notification.event == ACCOUNT else f"job.{notification.event}"
    body = {"type": subject, "timestamp": notification.made_at.isoformat(), **message}
    data = json.dumps(body).encode()
    headers = webhook.signed(
        secret["secret"], f"notice-{settings.DEPLOYMENT}-{notification.pk}", int(clock.date_clock()), data
    )
    return _post_bytes(secret["address"], data, headers)


def _how_to_stop(notification: Notification) -> str:
    link = unsubscribe.link(notification.target)
    return said("To get no more of these e-mails: {link}", link=link) if link else ""


def _post(url: str, body: Mapping[str, object], headers: Mapping[str, str]) -> Answer:
    return _post_bytes(url, json.dumps(body).encode(), headers)


def _post_bytes(url: str, data: bytes, headers: Mapping[str, str]) -> Answer:
    headers = {"Content-Type": "application/json", **headers}
    return webhook.post(url, data, headers, settings.TRAINYARD.notify_private)


def slack_text(message: Mapping[str, Any]) -> str:
    """The message with Slack's own escapes, so that no job name becomes a link or notifies a channel."""

    def plain(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    link = f"\n{message['url']}" if message.get("url") else ""
    return f"*{plain(message['title'])}*\n{plain(message['text'])}{link}"


def _mail(address: str, message: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
    if not settings.EMAIL_HOST:
        return Answer(False, NO_MAIL, final=True)
    subject = " ".join(message["title"].split())[:200]
    stop = message["stop"] if headers else ""
    text = "\n\n".join(part for part in (message["text"], message.get("url"), stop) if part)
    try:
        EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [address], headers=dict(headers)).send()
    except smtplib.SMTPRecipientsRefused as refused:
        code, words = next(iter(refused.recipients.values()), (0, b""))
        return Answer(False, f"{code} {words.decode('utf-8', 'replace')}", final=500 <= code < 600)
    except smtplib.SMTPResponseException as problem:
        error: bytes | str = problem.smtp_error
        answer = error.decode("utf-8", "replace") if isinstance(error, bytes) else error
        return Answer(False, f"{problem.smtp_code} {answer}")
    except (OSError, smtplib.SMTPException) as problem:
        why = str(problem)[:400] or type(problem).__name__
        return Answer(False, said("No answer from the mail server: {why}", why=why))
    return Answer(True, said("The mail server took it."))


notification_sender = NotificationSender()
