"""History: transitions of jobs, shell sessions, and when periodic work was done."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from agents.infra.sentences import SentenceField
from jobs.models.jobs import Job
from jobs.models.runs import Run
from jobs.rules.lifecycle.history_kinds import HistoryKind


class Transition(models.Model):
    """One line of a job's history, with cause and actor. It is also the outbox of notifications. Never updated."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    host_at = models.DateTimeField(
        null=True, blank=True, help_text="by the host's clock, where the host reported it"
    )
    host_offset_s = models.FloatField(
        null=True, blank=True, help_text="how far the host's clock was ahead of ours then"
    )
    kind = models.CharField(
        max_length=16,
        default=HistoryKind.STATE,
        db_default="state",
        help_text="history_kinds.HistoryKind",
    )
    subject = models.CharField(
        max_length=80, help_text="job (its state), a replica's name, or wait, flag, notice (beside the state)"
    )
    run = models.CharField(
        max_length=80, blank=True, default="", db_default="", help_text="the run that the line is about"
    )
    wait_reason = models.CharField(
        max_length=24,
        blank=True,
        default="",
        db_default="",
        help_text="of a line that says why the job waits: rules.scheduling.wait_reasons.WaitReason",
    )
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    attempt = models.PositiveIntegerField()
    cause = SentenceField()
    actor = models.CharField(max_length=150)

    class Meta:
        ordering = ["id"]


class RecordingState(models.TextChoices):
    """How far the console has the recording of a shell."""

    # It is fetched from its host, while the shell is open and after that.
    COMING = "coming"
    # All of it is here, and its digest is the host's.
    WHOLE = "whole"
    # Its writer on the host was killed, or the host was rebooted: the end is missing.
    CUT = "cut"
    # It was changed on the host while it was fetched.
    DIFFERS = "differs"
    # The host has none.
    NONE = "none"
    # It was deleted: its time is over, or its job was deleted.
    DELETED = "deleted"


class ShellSession(models.Model):
    """Who had a shell on which run, from when to when, and why it closed.

    A shell that is kept on its host has a key. It outlives its connections, and ends `keep_s` after the last one.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shells")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    user_name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="when the web process that holds it last renewed this"
    )
    closed_at = models.DateTimeField(null=True, blank=True)
    close_reason = SentenceField(blank=True)
    key = models.CharField(
        max_length=32,
        null=True,
        blank=True,
        unique=True,
        help_text="its name on the host, if it is kept there",
    )
    keep_s = models.PositiveIntegerField(default=0, db_default=0)
    login = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="the SHA-256 of the session or token of its owner: it ends with that",
    )
    attached_at = models.DateTimeField(
        null=True, blank=True, help_text="when the host first had it: from then on it is not made again"
    )
    close_wanted_at = models.DateTimeField(
        null=True, blank=True, help_text="since when its host is to end it, because of `close_reason`"
    )
    shared = models.BooleanField(
        default=False, db_default=False, help_text="whether people with the verb `watch_shell` may watch it"
    )

    # Its recording (jobs/recordings).
    recording = models.CharField(
        max_length=32, blank=True, default="", db_default="", help_text="its name on the host; empty: none"
    )
    recording_state = models.CharField(
        max_length=8, choices=RecordingState.choices, blank=True, default="", db_default=""
    )
    recording_stored = models.BigIntegerField(default=0, db_default=0, help_text="so many bytes are here")
    recording_size = models.BigIntegerField(
        null=True, blank=True, help_text="its final size, once the host has said it"
    )
    recording_digest = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="the SHA-256 that the host computed"
    )
    recording_file = models.CharField(
        max_length=300, blank=True, default="", db_default="", help_text="where it is, once it is complete"
    )

    class Meta:
        ordering = ["-opened_at"]
        indexes = [
            models.Index(fields=["keep_s"], name="shells_open", condition=models.Q(closed_at__isnull=True)),
            models.Index(
                fields=["run"],
                name="recordings_coming",
                condition=models.Q(recording_state=RecordingState.COMING),
            ),
            models.Index(
                fields=["closed_at"], name="recordings_kept", condition=models.Q(recording_stored__gt=0)
            ),
        ]


class RecordingPiece(models.Model):
    """Bytes [start, end) of the recording of a shell, zlib-compressed, until it is complete and becomes a file."""

    session = models.ForeignKey(ShellSession, on_delete=models.CASCADE, related_name="pieces")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["session", "start"]
        constraints = [
            models.UniqueConstraint(fields=["session", "start"], name="recording_piece_once"),
            models.CheckConstraint(
                condition=models.Q(end__gt=models.F("start")), name="recording_piece_not_empty"
            ),
        ]


class Tick(models.Model):
    """When a periodic task was last done.

    The process that updates the row may do the task now. While one process holds the lock of the row, no other does it.
    """

    name = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField()
    serial = models.BigIntegerField(default=0, help_text="how many times it was done")
