"""Which replica was lost first: the cause of what its peers report.

When a replica is killed, its peers lose their connections to it, and programs such as torch's then fail with an error
of their own. The error of a peer is true, but it says nothing about what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from jobs.rules.lifecycle import retry
from jobs.rules.lifecycle.retry import EndClass
from jobs.rules.lifecycle.views import RunView

# A peer notices at once that a connection was closed. If a host is gone without a word, gloo waits for half an hour.
NOTICED_WITHIN = timedelta(minutes=35)
# Hosts' clocks may differ by so much without a note.
CLOCKS = timedelta(seconds=2)


def lost_first(runs: Sequence[RunView], failed: Sequence[RunView]) -> RunView | None:
    """The run that was lost before all of these failed, while all of them ran; None if there is none."""
    found = [
        run
        for run in runs
        if _was_lost(run) and all(_may_have_noticed(peer, run, _next_of(runs, run)) for peer in failed)
    ]
    return min(found, key=lambda run: (run.ended_at is None, run.ended_at), default=None) if failed else None


def _was_lost(run: RunView) -> bool:
    if run.stop_wanted_at is not None and run.ended_at is None:
        return False  # a reboot did what our stop was to do
    # Whether it is the primary matters only for an exit status of 0.
    return run.started_at is not None and retry.classify(run, primary=False) == EndClass.NOT_PERMANENT


def _may_have_noticed(peer: RunView, lost: RunView, after: RunView | None) -> bool:
    if peer.replica == lost.replica or peer.attempt != lost.attempt:
        return False
    if after is not None and peer.created_at >= after.created_at:
        return False  # it began together with the run that took the place of the lost one
    if peer.ended_at is None or lost.ended_at is None:
        return True  # nobody saw the end of a run whose host was rebooted
    early = timedelta() if peer.host == lost.host else CLOCKS
    return lost.ended_at - early <= peer.ended_at <= lost.ended_at + NOTICED_WITHIN


def _next_of(runs: Sequence[RunView], run: RunView) -> RunView | None:
    later = [each for each in runs if (each.replica, each.attempt) == (run.replica, run.attempt)]
    return min(
        (each for each in later if each.number > run.number and not each.held),
        key=lambda each: each.number,
        default=None,
    )
