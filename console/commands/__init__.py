"""What the `trainyard` command does, one file per noun: a function per verb, parsed words in, exit code out."""

from __future__ import annotations

from jobs.models import Project

# Who did it, in the audit, when it was not done in a browser.
COMMAND_LINE = "command line"


class Refused(Exception):
    """It was understood, and will not be done. The message tells why and what would help. Exit code 1."""


def project_named(name: str) -> Project:
    project = Project.objects.filter(name=name).first()
    if project is None:
        raise Refused(f"There is no project {name!r}.")
    return project
