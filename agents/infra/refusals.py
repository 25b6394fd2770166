"""The exceptions by which a service refuses a request. Pages, API and commands translate them into answers.

Each message is a sentence for the person who asked.
"""

from __future__ import annotations


class Refused(Exception):
    """The request cannot be done as things are. `field` names its subject; `message` says why, and what would help."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


class Conflict(Refused):
    """The name already belongs to something else."""


class Exhausted(Refused):
    """There are too many of these already. The request is possible again when there are fewer."""


class Unavailable(Exception):
    """The request cannot be done now. The same request may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
