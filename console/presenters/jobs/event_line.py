"""One event of a job, as pages word it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.presenters import badges
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, HistoryKind

# Smaller differences come from the time that a message takes, and from clocks that are a second off everywhere.
CLOCK_IS_OFF_S = 2.0
WORDS: Mapping[str, tuple[str, str]] = {
    HistoryKind.STATE: (gettext_noop("State"), "play"),
    HistoryKind.REPLICA: (gettext_noop("Replica"), "ring"),
    HistoryKind.RUN: (gettext_noop("Run"), "terminal"),
    HistoryKind.PLACEMENT: (gettext_noop("Placement"), "tick"),
    HistoryKind.WAIT: (gettext_noop("Waiting"), "hourglass"),
    HistoryKind.QUOTA: (gettext_noop("Quota"), "hourglass"),
    HistoryKind.RESTART: (gettext_noop("Restart"), "ring"),
    HistoryKind.RETRY: (gettext_noop("Retry"), "ring"),
    HistoryKind.DRAIN: (gettext_noop("Drain"), "unplugged"),
    HistoryKind.PREEMPT: (gettext_noop("Preemption"), "hourglass"),
    HistoryKind.FLAG: (gettext_noop("Flag"), "note"),
    HistoryKind.CANCEL: (gettext_noop("Cancel"), "stop"),
    HistoryKind.NOTIFICATION: (gettext_noop("Notification"), "note"),
    HistoryKind.LABEL: (gettext_noop("Label"), "note"),
    HistoryKind.MOVE: (gettext_noop("Moved in the queue"), "note"),
    HistoryKind.OUTPUTS: (gettext_noop("Outputs"), "note"),
    HistoryKind.PREPARATION: (gettext_noop("Preparation"), "hourglass"),
}


class Line(NamedTuple):
    """The columns of an event. Its words are made when they are asked for: of many equal events one is shown."""

    id: int
    at: datetime
    host_at: datetime | None
    host_offset_s: float | None
    kind: str
    subject: str
    run: str
    from_state: str
    to_state: str
    attempt: int
    said: str
    actor: str

    @property
    def clock_off(self) -> str:
        return clock_note(self.host_offset_s)

    @property
    def word(self) -> str:
        return gettext(WORDS.get(self.kind, WORDS[HistoryKind.STATE])[0])

    @property
    def icon(self) -> str:
        return WORDS.get(self.kind, WORDS[HistoryKind.STATE])[1]

    @property
    def of_job(self) -> bool:
        return self.subject in ABOUT_THE_JOB

    @property
    def before(self) -> str:
        return badges.word(self.from_state) if self.from_state else ""

    @property
    def after(self) -> str:
        return badges.word(self.to_state) if self.to_state else _("over")

    @property
    def cause(self) -> str:
        return shown(self.said)


# The columns of a Transition, in the order of the fields.
COLUMNS = tuple("cause" if name == "said" else name for name in Line._fields)


def clock_note(offset_s: float | None) -> str:
    if offset_s is None or abs(offset_s) < CLOCK_IS_OFF_S:
        return ""
    text = _("its clock is {seconds} s ahead") if offset_s > 0 else _("its clock is {seconds} s behind")
    return text.format(seconds=f"{abs(offset_s):.0f}")
