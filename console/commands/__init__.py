"""What the `trainyard` command does, one file per noun: a function per verb, parsed words in, exit code out."""

from __future__ import annotations

from jobs.models import Project

# Who did it, in the audit, when it was not done in a browser.
COMMAND_LINE = "command line"


class CommandRefused(Exception):
    """The command was understood and is not done. The message says why and what would help. The exit code is 1."""


def project_named(name: str) -> Project:
    project = Project.objects.filter(name=name).first()
    if project is None:
        raise CommandRefused(f"There is no project {name!r}.")
    return project
