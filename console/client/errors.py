"""What ends a command: what happened, and what helps."""

from __future__ import annotations

REFUSED, NOT_UNDERSTOOD, INTERRUPTED = 1, 2, 130


class ClientError(Exception):
    """`cure`: what the person can do about it. `code`: the exit code of the command."""

    def __init__(self, message: str, cure: str = "", code: int = REFUSED) -> None:
        super().__init__(message)
        self.message, self.cure, self.code = message, cure, code


class Offline(ClientError):
    """The console does not answer, or the path to it is cut. Later it may answer."""


class Refusal(ClientError):
    """The console has answered with an error."""

    def __init__(self, status: int, message: str, cure: str = "") -> None:
        super().__init__(message, cure)
        self.status = status
