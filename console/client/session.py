"""What a verb works with: the console, the connection to it, the project, and the job that a person means."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from typing import Any

from . import configuration, credentials
from .configuration import Console
from .connection import Connection, Target, quoted
from .errors import NOT_UNDERSTOOD, ClientError

_ID = re.compile(r"[0-9]{1,19}")
_IN_NAME = re.compile(r"(?:customJobs|jobs)/([0-9]{1,19})(?:/|$)")
_STUDY_NAME = re.compile(r"projects/[^/?#]+/locations/[^/?#]+/hyperparameterTuningJobs/[0-9]{1,19}")
LAST = "last"


class Session:
    """One call of the command. Nothing is opened before it is needed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self._console: Console | None = None
        self._connection: Connection | None = None

    @property
    def console(self) -> Console:
        if self._console is None:
            self._console = configuration.load().chosen(self.args.console or "")
        return self._console

    @property
    def target(self) -> Target:
        ca_file = self.args.ca_file or self.console.ca_file
        return Target(self.console.url, credentials.token_of(self.console), ca_file)

    @property
    def api(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.target)
        return self._connection

    @property
    def chosen_project(self) -> str:
        """The project that an option, a variable or the login names; empty if none does."""
        return self.args.project or os.environ.get("TRAINYARD_PROJECT", "") or self.console.project

    @property
    def project(self) -> str:
        """The project that something is done in: the chosen one, or the only one of the person."""
        if self.chosen_project:
            return self.chosen_project
        names = [
            str(row["name"])
            for row in self.api.get("/api/v1/projects")["projects"]
            if not row.get("archived")
        ]
        if len(names) == 1 or "default" in names:
            self.args.project = names[0] if len(names) == 1 else "default"
            return str(self.args.project)
        known = ", ".join(names[:10]) or "none"
        raise ClientError(
            f"Which project? Yours are: {known}.", "Give --project NAME, or set TRAINYARD_PROJECT."
        )

    @property
    def location(self) -> str:
        return str(self.args.location or os.environ.get("TRAINYARD_LOCATION", "") or "default")

    @property
    def custom_jobs(self) -> str:
        return f"/v1/projects/{quoted(self.project)}/locations/{quoted(self.location)}/customJobs"

    def studies(self, location: str = "-") -> str:
        """The address of the tuning jobs of a location; `-` for all."""
        return f"/v1/projects/{quoted(self.project)}/locations/{quoted(location)}/hyperparameterTuningJobs"

    def study(self, text: str) -> str:
        """The address of the study that is named by its number, its resource name or the address of its page."""
        found = _STUDY_NAME.search(text)
        if found:
            return f"/v1/{found[0]}"
        number = text.rstrip("/").rpartition("/")[2]
        if not _ID.fullmatch(number):
            raise ClientError(
                f"{text!r} is no study.", "Its number: trainyard studies lists them.", NOT_UNDERSTOOD
            )
        return f"{self.studies()}/{number}"

    def pages(self, path: str, key: str, query: dict[str, object], most: int = 0) -> Iterator[dict[str, Any]]:
        """The rows of a list, page by page; at most `most` of them, 0 for all."""
        seen, token = 0, ""
        while True:
            page = self.api.get(path, {**query, "pageToken": token})
            for row in page.get(key, ()):
                yield row
                seen += 1
                if most and seen >= most:
                    return
            token = page.get("nextPageToken", "")
            if not token or not page.get(key):
                return

    def user(self) -> str:
        """The name of the person whose token this is."""
        return str(self.api.get("/api/v1/account")["user"])

    def job_id(self, text: str, state: str = "") -> str:
        """The number of a job that is named by its number, its resource name or the address of its page.

        `last`, or nothing: the newest job of the person, or the newest one in this state.
        """
        if _ID.fullmatch(text):
            return text
        found = _IN_NAME.search(text)
        if found:
            return found[1]
        if text not in ("", LAST):
            raise ClientError(
                f"{text!r} is no job.",
                "Give its number (trainyard jobs lists them), or: last",
                NOT_UNDERSTOOD,
            )
        query = {"owner": self.user(), "project": self.chosen_project, "state": state, "pageSize": 1}
        rows = self.api.get("/api/v1/jobs", query)["jobs"]
        if not rows:
            which = f" that is {state}" if state else ""
            raise ClientError(f"You have no job{which} here.", "Give its number: trainyard jobs lists them.")
        return str(rows[0]["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/jobs/{job_id}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
