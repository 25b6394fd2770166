"""A regular expression that is searched in the bytes of logs, in a time that grows with the log and nothing else.

RE2 runs it: it never goes back over what it has read, and lets other threads run meanwhile. Upper and lower case are
the same unless the expression begins with (?-i). A match lies in one line; `^` and `$` are the ends of a line.
"""

from __future__ import annotations

import re2

from jobs.logs.search_pattern import Finder, Span

# An expression is translated into a program. The time for a byte grows with its size: counted repeats, one in the
# other, make large ones. With the largest, 16 KiB take a quarter of a second.
MAX_PROGRAM = 3_000
MAX_MEMORY = 8 * 1024 * 1024


class BadExpression(ValueError):
    """The expression cannot be used; the message says why."""


class RegexPattern:
    """Searches as SearchPattern does. A match in a line that is longer than MAX_LINE may have `reach` bytes."""

    reach = 4 * 1024
    step = 96 * 1024
    whole_lines = True

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = False
        options.never_nl = True
        options.max_mem = MAX_MEMORY
        try:
            self._expression = re2.compile(b"(?m)" + text.encode(), options)
        except re2.error as problem:
            raise BadExpression(_reason(problem)) from None
        if self._expression.programsize > MAX_PROGRAM:
            raise BadExpression("it is too large. Use smaller or fewer repeats.")

    def finder(self, data: bytes) -> Finder:
        def find(at: int) -> Span | None:
            found = self._expression.search(data, at) if at < len(data) else None
            # Behind the last line feed there is no line yet, though `^` and `$` match there.
            if found is None or (found.start() == len(data) and data.endswith(b"\n")):
                return None
            span: Span = found.span()
            return span

        return find


def _reason(problem: Exception) -> str:
    said = problem.args[0] if problem.args else b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    # The expression is written without the flag that we put before it.
    return text.replace("(?m)", "", 1) + "."
