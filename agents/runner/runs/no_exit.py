"""Why a run has no exit status: its command was never executed, or nobody saw it end."""

from __future__ import annotations

from typing import NamedTuple

from agents.runner.runs.facts import Facts
from agents.runner.runs.replica import FAILED, GO
from agents.runner.runtimes.containers import Container
from agents.runner.runtimes.packages import NO_PYTHON, has_packages


class Found(NamedTuple):
    """What a keeper knows of a run that ends without an exit status. `state`, `text`: what the replica's process has
    reached, and why it failed. `stopping`: this keeper has begun a stop; `ordered`: one was ordered."""

    container: Container | None
    log: int
    state: int
    text: str
    stopping: bool
    ordered: bool


def explain_no_exit(facts: Facts, found: Found) -> None:
    container = found.container
    if container and container.never_up() and not found.stopping:
        refusal, message = container.refusal(found.log)
        if refusal == "exec_failed" and has_packages(container.directory):
            message = "%s: %s" % (NO_PYTHON, message)
        facts.update(why="refused", refusal=refusal, message=message, never_started=True)
    elif found.state == FAILED:
        facts.update(why="refused", refusal="exec_failed", message=found.text, never_started=True)
    elif found.state != GO or (container and found.stopping and not container.was_made()):
        why = "stop" if found.stopping or found.ordered else "lost"
        facts.update(why=why, message=facts["message"] or "it was not started", never_started=True)
    else:
        facts["why"] = "lost"
        # Only a keeper that lives has begun a stop.
        by_engine = container is not None and (container.given_up() or found.stopping)
        text = (
            "its container was removed, or its engine did not tell"
            if by_engine
            else "its keepers were killed"
        )
        facts["message"] = facts["message"] or text + "; how it ended is not known"
