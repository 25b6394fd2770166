"""The states of a trial, as Vertex names them."""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    """REQUESTED: its parameters are not drawn yet. STOPPING: a rule stops it early. INFEASIBLE: it has no final
    measurement."""

    REQUESTED = "REQUESTED"
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    INFEASIBLE = "INFEASIBLE"


OVER = frozenset({TrialState.SUCCEEDED, TrialState.INFEASIBLE})
