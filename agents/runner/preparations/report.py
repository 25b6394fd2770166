"""How far a preparation is: one document in its directory, replaced as a whole, which every serve can read."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict

from agents.runner.files import read_json, write_file
from agents.runner.linux import boot_id

WORKING, READY, FAILED, LOST = "WORKING", "READY", "FAILED", "LOST"
# Who is to blame for a failure: what was asked for, or this host.
USER, HOST = "user", "host"
MAX_MESSAGE, MAX_TAIL = 1000, 8000
BETWEEN_S = 0.25
# A directory in that of a preparation, for as long as a program needs credentials there.
CREDENTIALS = "credentials"


class Failed(Exception):
    """It cannot be prepared. `fault`: USER (a wrong name, a missing module) or HOST (disk full, a broken engine)."""

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Report:
    """Written by the process that prepares. What was said within a quarter of a second is written together."""

    def __init__(self, directory: str, asked: int = 0) -> None:
        self.directory = directory
        self.document: Dict[str, Any] = {
            "state": WORKING,
            "asked": asked,
            "boot_id": boot_id(),
            "done": 0,
            "total": None,
            "unit": "",
            "message": "",
            "tail": "",
            "result": {},
            "fault": "",
        }
        self._saved_at = 0.0
        self.save()

    def progress(self, done: int, total: int | None = None, unit: str = "bytes") -> None:
        self.document.update(done=done, total=total, unit=unit)
        self._save_soon()

    def message(self, text: str) -> None:
        """What is being done, in the words of the program that does it."""
        self.document["message"] = text[:MAX_MESSAGE]
        self._save_soon()

    def output(self, text: str) -> None:
        """Add to the output of the program, of which the end is kept."""
        self.document["tail"] = (self.document["tail"] + text)[-MAX_TAIL:]
        self._save_soon()

    def ready(self, result: Dict[str, Any]) -> None:
        self.document.update({"state": READY, "result": result, "message": ""})
        self.save(durable=True)

    def failed(self, fault: str, message: str) -> None:
        self.document.update({"state": FAILED, "fault": fault, "message": message[:MAX_MESSAGE]})
        self.save(durable=True)

    def _save_soon(self) -> None:
        if time.monotonic() - self._saved_at >= BETWEEN_S:
            self.save()

    def save(self, durable: bool = False) -> None:
        write_file(state_path(self.directory), json.dumps(self.document).encode(), durable)
        self._saved_at = time.monotonic()


def state_path(directory: str) -> str:
    return os.path.join(directory, "state.json")


def read_state(directory: str) -> Dict[str, Any] | None:
    """The document, or None: nothing was ever reported there, or somebody damaged it."""
    found = read_json(state_path(directory))
    return found if found is not None and found.get("state") in (WORKING, READY, FAILED) else None
