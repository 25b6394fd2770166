"""The states of a preparation: something that a host must have before runs that need it may start there."""

from __future__ import annotations

from enum import StrEnum


class PreparationState(StrEnum):
    WANTED = "WANTED"  # its host has not begun yet
    WORKING = "WORKING"
    READY = "READY"
    FAILED = "FAILED"


# Refusals of runs whose preparation failed: by what the user asked for, or by the host.
NOT_PREPARED, HOST_NOT_PREPARED = "not_prepared", "host_not_prepared"
# Refusal of a run whose host has thrown away what it had prepared before.
UNPREPARED = "unprepared"
