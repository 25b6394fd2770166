"""What the `trainyard` command does, one file per noun: a function per verb, parsed words in, exit code out."""

from __future__ import annotations


class Refused(Exception):
    """It was understood, and will not be done. The message tells why and what would help. Exit code 1."""
