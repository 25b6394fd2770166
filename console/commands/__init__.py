"""What the `trainyard` command does: a file for each noun, a function for each verb.

A function takes the parsed arguments and returns the exit code. console/cli.py parses them.
"""

from __future__ import annotations

import getpass

from jobs.models import Project

# The actor in the audit when a change comes from the command line.
COMMAND_LINE = "command line"


class CommandRefused(Exception):
    """The command was understood and is not done. The message says why and what would help. The exit code is 1."""


def project_named(name: str) -> Project:
    project = Project.objects.filter(name=name).first()
    if project is None:
        raise CommandRefused(f"There is no project {name!r}.")
    return project


def operator() -> str:
    """The actor in the history of a host: the login name of the person at the terminal."""
    return f"{getpass.getuser()} ({COMMAND_LINE})"
