"""Facts: what is known about one run, a document that only grows. Every version of the runner reads every other's."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict

from agents.runner.files import clean_directory, read_json, whole, write_with_spares
from agents.runner.linux import boot_id
from agents.runner.wire import MAX_HEADER

SCHEMA = 1
FACTS = "facts.json"


Facts = Dict[str, Any]


def new_facts(run: str, seal: str = "") -> Facts:
    """The facts of a run that was just claimed."""
    return {
        "schema": SCHEMA,
        "run": run,
        "phase": "claimed",
        "boot_id": boot_id(),
        "claimed_at": time.time(),
        "started_at": None,
        "stopping_at": None,
        "ended_at": None,
        "closed_at": None,
        "seconds": None,
        "exit_code": None,
        "exit_signal": None,
        "why": None,
        "refusal": None,
        "message": "",
        "oom": None,
        "never_started": None,
        "pid": None,
        "ticks": None,
        "mono_started": None,
        "containment": "subreaper",
        "first": [],
        "namespace_refused": None,
        "cgroup": None,
        "memory_cgroup": None,
        "memory_mb": None,
        "memory_enforced": None,
        "oom_sure": None,
        "mark": "",
        "seal": seal,
        "work_key": None,
        "tmp": "",
        "log": {"size": 0, "final": False, "digest": None},
        "survivors": [],
        "busy": {},
        # The variables of its environment that only the host knows: its GPUs' numbers, its network interface.
        "host_env": {},
        # Of a run in a container: the engine's program, and the name by which the container is removed.
        "runtime": {},
        # When it is closed: whether its program may have reported metrics.
        "metrics": None,
    }


MAX_FACTS = MAX_HEADER // 2


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


_NONE, _NUMBER = type(None), (int, float, type(None))
# Which type a fact must have to be used.
_KINDS: Dict[str, Any] = dict(
    dict.fromkeys(("claimed_at", "started_at", "ended_at", "closed_at", "seconds", "mono_started"), _NUMBER),
    **dict.fromkeys(("exit_code", "exit_signal", "pid", "ticks"), (int, _NONE)),
    **dict.fromkeys(("boot_id", "message", "mark", "seal", "work", "tmp"), str),
    **dict.fromkeys(("cgroup", "memory_cgroup", "work_key", "namespace_refused"), (str, _NONE)),
    **dict.fromkeys(("survivors", "gpus", "first"), list),
    **dict.fromkeys(("log", "busy", "host_env"), dict),
)  # fmt: skip


def load_facts(directory: str) -> Facts | None:
    """A run's facts with every key that this version knows, and all that another version added."""
    path = os.path.join(directory, FACTS)
    found = read_json(path)
    if found is None or not isinstance(found.get("phase"), str):
        return None
    facts = new_facts(os.path.basename(directory))
    facts.update({"boot_id": "", "claimed_at": None})
    # Escaped, a text may be six times as long. It was edited by hand then: keep the known keys that are short.
    if _size_of(path) > MAX_FACTS // 6 and len(json.dumps(found)) > MAX_FACTS:
        found = {key: found[key] for key in found.keys() & facts.keys() if len(json.dumps(found[key])) < 4096}
        found.setdefault("phase", "claimed")
    for key, value in found.items():
        if key not in _KINDS or isinstance(value, _KINDS[key]) and not isinstance(value, bool):
            facts[key] = value
    facts["log"] = dict(facts["log"], size=whole(facts["log"].get("size")))
    if [type(each) for each in facts["first"]] != [int, int]:
        facts["first"] = []
    return facts


def save_facts(directory: str, facts: Facts, durable: bool = False) -> None:
    facts["message"] = facts["message"][:2000]
    data = json.dumps(facts, separators=(",", ":")).encode("ascii")
    write_with_spares(directory, FACTS, data, durable)


def add_message(facts: Facts, text: str) -> None:
    facts["message"] = "; ".join(each for each in (facts["message"], text) if each)


def close_unstarted(facts: Facts, why: str, message: str, refusal: str | None = None) -> Facts:
    """The facts of a run whose command was never executed, and never will be."""
    facts.update(
        phase="closed", why=why, refusal=refusal, message=message, never_started=True, closed_at=time.time()
    )
    facts["metrics"] = False
    facts["log"] = dict(facts["log"], final=True)
    return facts


def close_after_reboot(directory: str, facts: Facts) -> None:
    """Close a run after the host was booted: its processes are over without a look."""
    log = os.path.join(directory, "log")
    size = os.path.getsize(log) if os.path.exists(log) else 0
    if facts["phase"] != "ended":
        facts.update(
            why="reboot", message="the host was rebooted; how it ended is not known", never_started=None
        )
    facts.update(phase="closed", closed_at=time.time(), survivors=[])
    facts["log"] = dict(facts["log"], size=size, final=True)
    save_facts(directory, facts, durable=True)
    clean_directory(directory, with_packages=False)  # serve must not wait: after a reboot it closes all runs
