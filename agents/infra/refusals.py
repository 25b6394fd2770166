"""How a service says no. The doors translate these; each message is a sentence for the person who asked."""

from __future__ import annotations


class Refused(Exception):
    """This cannot be done as things are. `field` names what it is about, `message` says why and what would help."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


class Conflict(Refused):
    """The same name was given to something else before."""


class Exhausted(Refused):
    """There are too many of these already; it is possible again when there are fewer."""


class Unavailable(Exception):
    """Not now; the same request may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
