"""A command as people type it: one line as in a shell, or one argument a line; and back into text.

A line that only a shell can run (`python a.py | tee log`) is never guessed about: `shell_syntax` names what a shell is
needed for, and the form asks.
"""

from __future__ import annotations

import json
import re
import shlex

# An argument that can stand on a line of its own as it is. A line in double quotes is a JSON string: it can hold what a
# plain line cannot, such as a line break.
_PLAIN_ARGUMENT = re.compile(r'[^\s"](?:[^\n\r]*\S)?')
# A line is cut into quoted texts, escaped characters, and what a shell acts on outside of quotes.
_SHELL_TOKEN = re.compile(
    r"""'[^']*'|"(?P<quoted>(?:[^"\\]|\\.)*)"|\\."""
    r"""|(?P<syntax>&&|\|\||>>|<<|\$\(|\$\{|[|&;<>()$`*?]|\[[^\s\]]*\]|\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}"""
    r"""|(?:(?<=\s)|^)[~\#])""",
    re.DOTALL,
)
_IN_QUOTES = re.compile(r"\$\(|\$\{|[$`]")
_ASSIGNMENT = re.compile(r"\s*[A-Za-z_]\w*=")


def read_arguments(text: str) -> list[str]:
    """The arguments of a command. Several lines are an argument each, one line is cut as a shell cuts it."""
    lines = _lines(text)
    if len(lines) != 1 or _json_text(lines[0]) is not None:
        return [_argument(line) for line in lines]
    return _words(lines[0]) or [lines[0]]


def write_arguments(argv: list[str]) -> str:
    """The text that `read_arguments` reads back as these arguments, and that needs no question."""
    if len(argv) == 1:
        only = argv[0]
        plain = _words(only) == argv and only == only.strip() and not only.startswith('"')
        return only if plain and not shell_syntax(only) else _json(only)
    return "\n".join(_written(number, argument) for number, argument in enumerate(argv))


def question(text: str) -> str:
    """What of this text may be meant for a shell: a part of its only line, or a first line with blanks, which would be
    the name of a program. An empty text if it has one meaning only."""
    lines = _lines(text)
    if not lines or _json_text(lines[0]) is not None:
        return ""
    if len(lines) == 1:
        return shell_syntax(lines[0]) if _words(lines[0]) is not None else ""
    return lines[0] if lines[0].split()[1:] else ""


def unclosed_quote(text: str) -> bool:
    """Whether the only line of this text has a quote that is not closed, or ends with a backslash."""
    lines = _lines(text)
    return len(lines) == 1 and _json_text(lines[0]) is None and _words(lines[0]) is None


def shell_syntax(line: str) -> str:
    """The first part of a line on which only a shell acts, such as `|`, `$` or `*`. An empty text if there is none."""
    assigned = _ASSIGNMENT.match(line)
    if assigned:
        return assigned[0].strip()
    for token in _SHELL_TOKEN.finditer(line):
        if token["syntax"]:
            return token["syntax"]
        inside = _IN_QUOTES.search(token["quoted"] or "")
        if inside:
            return inside[0]
    return ""


def _lines(text: str) -> list[str]:
    """The lines that are not empty. Lines that end with a backslash go on in the next one, if all do but the last."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(line.endswith("\\") for line in lines[:-1]):
        return [" ".join(line.removesuffix("\\").strip() for line in lines)]
    return lines


def _words(line: str) -> list[str] | None:
    """The words of a line, cut as a shell cuts them; None where a quote is not closed."""
    try:
        return shlex.split(line)
    except ValueError:
        return None


def _argument(line: str) -> str:
    text = _json_text(line)
    return line if text is None else text


def _json_text(line: str) -> str | None:
    if not line.startswith('"'):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _written(number: int, argument: str) -> str:
    names_a_program = number == 0 and argument.split()[1:]
    plain = _PLAIN_ARGUMENT.fullmatch(argument) and not argument.endswith("\\")
    return argument if plain and not names_a_program else _json(argument)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
