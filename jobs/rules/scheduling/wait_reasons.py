"""Why a job waits. The decider that makes a job wait names the reason; nothing reads it out of the text.

The text holds numbers and names that change from pass to pass, and words of an admin, such as the message of a cordon.
History writes a new line only when the *reason* changes (job_history.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class WaitReason(StrEnum):
    QUOTA = "quota"  # the project or its member is over quota
    QUOTA_RESERVED = "quota_reserved"  # what the job needs of the quota is kept for an earlier job
    CAPACITY = "capacity"  # no host has room for the job now
    TURN = "turn"  # earlier jobs wait for the same hosts
    MAKING_ROOM = "making_room"  # SPOT jobs are being stopped for the job
    NO_HOST_UP = "no_host_up"  # no host takes anything now
    LOCATION = "location"  # the location serves other projects
    NO_HOST = "no_host"  # no host is in service
    PARAMETERS = "parameters"  # the parameters of the trial are being drawn
    FAULT = "fault"  # Trainyard itself failed to start the job


# A job may alternate between these from pass to pass. To history each is the same reason as the other one of its pair.
_SAME_IN_HISTORY: dict[str, str] = {
    WaitReason.QUOTA_RESERVED: WaitReason.QUOTA,
    WaitReason.MAKING_ROOM: WaitReason.CAPACITY,
}
# The reasons that are the kind `quota` in history: time spent so does not count as waiting for capacity either.
OF_QUOTA = frozenset({WaitReason.QUOTA, WaitReason.QUOTA_RESERVED})


class Wait(NamedTuple):
    """Why one job waits: the reason, and the sentence that people read."""

    reason: WaitReason
    text: str


def is_other_reason(one: str, other: str) -> bool:
    """Whether history writes a line when a job that waited for the one reason now waits for the other."""
    return _SAME_IN_HISTORY.get(one, one) != _SAME_IN_HISTORY.get(other, other)
