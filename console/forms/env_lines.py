"""Lines of a `.env` file, as people paste them: `NAME=value`, with quotes, comments and `export`.

Nothing is expanded: `$HOME` stays as it is. No error repeats a value, because it may be a secret.
"""

from __future__ import annotations

import re

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

# What a line may look like that is pasted into the name of a variable.
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*=[ \t]*(?P<value>.*)", re.ASCII | re.DOTALL)
_COMMENT = re.compile(r"\s#.*|^#.*")
_SINGLE = re.compile(r"'(?P<text>[^']*)'\s*(?:#.*)?")
_DOUBLE = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPED = re.compile(r"\\(.)")
# What stands for itself after a backslash between double quotes, and what it means.
_MEANING = dict(zip('nrt"\\$`', '\n\r\t"\\$`', strict=True))
MAX_LINES = 400


def read_env_lines(text: str) -> list[tuple[str, str]]:
    """The names and values. Raises ValidationError with one message for each line that cannot be read."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if len(lines) > MAX_LINES:
        raise ValidationError(_("These are more than {number} lines.").format(number=MAX_LINES))
    found: list[tuple[str, str]] = []
    wrong: list[str] = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(_read_line(line))
        except ValueError as problem:
            wrong.append(_("Line {number}: {problem}").format(number=number, problem=problem))
    if wrong:
        raise ValidationError(wrong)
    return found


def _read_line(line: str) -> tuple[str, str]:
    read = _LINE.fullmatch(line)
    if read is None:
        raise ValueError(_("write NAME=value, with a name of letters, digits and _."))
    return read["name"], _value(read["name"], read["value"])


def _value(name: str, text: str) -> str:
    quote = text[:1]
    if quote not in ("'", '"'):
        return _COMMENT.sub("", text).strip()
    quoted = (_SINGLE if quote == "'" else _DOUBLE).fullmatch(text)
    if quoted is None:
        problem = _(
            "the quote of {name} is not closed at the end of the line. A value of several lines cannot be pasted here: "
            "type it into the field of the value, or write \\n between double quotes."
        )
        raise ValueError(problem.format(name=name))
    inside = quoted["text"]
    return inside if quote == "'" else _ESCAPED.sub(lambda found: _MEANING.get(found[1], found[0]), inside)
