"""Whether somebody may look into a run now: it is running, and it allows shells. For shells and for stacks."""

from __future__ import annotations

import os
from typing import List, NamedTuple

from agents.runner.files import read_json
from agents.runner.linux import boot_id
from agents.runner.runs.facts import Facts, load_facts
from agents.runner.runs.orders import Order, Refused, parse_order


class Running(NamedTuple):
    """A run that may be looked into. `secrets`: the secret values of its environment."""

    directory: str
    facts: Facts
    order: Order
    secrets: List[str]


class Closed(ValueError):
    """Nobody may look into the run. `reason`: the word for it on the wire."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def running_run(directory: str) -> Running:
    """Raises Closed if nobody may look into it."""
    facts = load_facts(directory)
    document = read_json(os.path.join(directory, "order.json"))
    if facts is None or facts["phase"] != "running" or document is None:
        raise Closed("not_running", "the run is not running")
    if facts["boot_id"] != boot_id():
        raise Closed("rebooted", "the run ended with a reboot of the host")
    try:
        order = parse_order(document)
    except Refused as refused:
        raise Closed("damaged", "the run's order is damaged: %s" % refused) from None
    if not order.web_access:
        raise Closed("no_shells", "this run does not allow shells")
    named = document.get("secrets")
    secrets = [order.env[name] for name in named if name in order.env] if isinstance(named, list) else []
    return Running(directory, facts, order, secrets)
