"""Events of a job as pages word them, and groups of equal ones: 64 replicas that start tell one thing, not 64."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.infra.texts import Parts, Text
from console.presenters import badges
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, HistoryKind

# Events are one group while each comes within this time of the one before it.
NEAR = timedelta(seconds=60)
# Values of a sentence in which equal events differ, and what stands there for all of them.
NAMES = frozenset({"host", "new_host", "replica"})
ANY = "…"
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


@dataclass(frozen=True, slots=True)
class Group:
    """Equal events of several replicas, newest first; or one event. `opened`: they are shown one by one."""

    lines: tuple[Line, ...]
    opened: bool = False

    @property
    def id(self) -> int:
        """That of its oldest event: it stays when the group grows."""
        return self.lines[-1].id

    @property
    def newest(self) -> Line:
        return self.lines[0]

    @property
    def since(self) -> datetime:
        return self.lines[-1].at

    @property
    def subjects(self) -> str:
        return ranges([line.subject for line in self.lines])

    @property
    def cause(self) -> str:
        """The cause of all, without the names in which theirs differ."""
        causes = {str(line.said) for line in self.lines}
        line = self.newest
        if len(causes) == 1:
            return line.cause
        # The sign for many names ends a sentence by itself.
        return shown(_nameless(line)).replace(f"{ANY}.", ANY)


@dataclass(slots=True)
class _Open:
    """A group that may still get older events."""

    lines: list[Line] = field(default_factory=list)
    subjects: set[str] = field(default_factory=set)

    def takes(self, line: Line) -> bool:
        return line.subject not in self.subjects and self.lines[-1].at - line.at <= NEAR

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self.subjects.add(line.subject)


def fold(lines: Iterable[Line], most: int, opened: int | None) -> tuple[tuple[Group, ...], int]:
    """Fold events that come newest first, into `most` groups at most. Also returns how many events are in them.

    A group stands where its newest event is. What happens to the job itself ends all groups, so that causes and effects
    stay in their order.
    """
    made: list[_Open] = []
    current: dict[tuple[object, ...], _Open] = {}
    taken = 0
    for line in lines:
        if line.of_job:
            current.clear()
        key = (line.attempt, line.kind, line.from_state, line.to_state, line.actor, _likeness(line))
        group = None if line.of_job else current.get(key)
        if group is None or not group.takes(line):
            if len(made) == most:
                break
            group = current[key] = _Open()
            made.append(group)
        group.add(line)
        taken += 1
    groups = (Group(tuple(group.lines), group.lines[-1].id == opened) for group in made)
    return tuple(groups), taken


def ranges(names: Sequence[str]) -> str:
    """The names of replicas in short: workerpool0-0, workerpool1-0…62."""
    found = []
    numbered = sorted((pool, int(index)) for pool, _, index in (name.rpartition("-") for name in names))
    for pool, of_pool in groupby(numbered, key=lambda name: name[0]):
        indexes = [index for _, index in of_pool]
        for _step, run in groupby(enumerate(indexes), key=lambda pair: pair[1] - pair[0]):
            row = [index for _, index in run]
            found.append(f"{pool}-{row[0]}{f'{ANY}{row[-1]}' if len(row) > 1 else ''}")
    return ", ".join(found)


def _likeness(line: Line) -> str:
    """The same text for causes that differ in names of hosts and replicas only."""
    cause = _nameless(line)
    return json.dumps(cause.parts, sort_keys=True) if isinstance(cause, Text) else cause


def _nameless(line: Line) -> str:
    if isinstance(line.said, Text):
        return Text(line.said, _without_names(line.said.parts))
    return line.said.replace(line.subject, ANY)


def _without_names(parts: Parts) -> Parts:
    if isinstance(parts, str) or "at" in parts:
        return parts
    if "join" in parts:
        return {**parts, "of": [_without_names(each) for each in parts["of"]]}
    values = {name: ANY if name in NAMES else _without_names(value) for name, value in parts["with"].items()}
    return {**parts, "with": values}
