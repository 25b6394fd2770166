"""Sentences that workers write, and that pages show in the language of their reader.

    said("Starting on {host}.", host="gpu-01")

is the English sentence, and remembers the template and the values that it was made of. Whoever wants English uses it as
the `str` that it is: REST, logs, the command line. A page translates the template and puts the same values into it. A
value may be such a sentence itself. The words of people and of hosts are values, and are never translated.

A moment is a value too: in English it is in UTC, and a page may show it in the zone of its reader.

`stored` and `read` are how a sentence is kept in one column: the English first, so that a person who looks into the
database can read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

# The separator of units in ASCII. What a person or a host wrote cannot hold it: `stored` takes it out.
_MARK = "\x1f"
# Letters that nobody sees, and that change what is seen: directions, letters of no width, separators of lines. The two
# that join letters (U+200C, U+200D) are not among them: languages and pictures are written with them.
HIDDEN_LETTER = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
# How a sentence was made, as JSON. A `str`: words that are the same in every language.
Parts = str | Mapping[str, Any]
_KINDS = (frozenset({"say", "with"}), frozenset({"join", "of"}), frozenset({"at", "in"}))
# Writes a moment, of which it gets the ISO form and the English.
Moments = Callable[[str, str], str]


class Language(Protocol):
    """What translates: `gettext` and `ngettext` of a language."""

    def gettext(self, message: str) -> str: ...

    def ngettext(self, singular: str, plural: str, number: int) -> str: ...


class Text(str):
    """A sentence in English that knows how it was made."""

    __slots__ = ("_made",)
    _made: str | Parts

    def __new__(cls, english: str, made: str | Parts = "") -> Text:
        text = super().__new__(cls, english)
        # What comes from the database stays JSON until somebody asks: most readers want the English.
        text._made = made
        return text

    @property
    def parts(self) -> Parts:
        if isinstance(self._made, str):
            self._made = _parsed(self._made) or {"join": "", "of": [str(self)]}
        return self._made


def said(template: str, /, **values: object) -> Text:
    """A sentence. `template` is written out where this is called: there the catalogues of the languages find it."""
    return Text(template.format_map(values), {"say": template, "with": _parts_of(values)})


def said_of(number: int, one: str, many: str, /, **values: object) -> Text:
    """A sentence about a number of things: `one` for a single thing. Both may name the `{number}`."""
    values["number"] = number
    english = (one if number == 1 else many).format_map(values)
    return Text(english, {"say": one, "many": many, "number": number, "with": _parts_of(values)})


def moment(at: datetime, english: str = "") -> Text:
    """A moment, to the second: `2026-11-29 14:05:00 UTC`, or as `english` has it."""
    utc = at.astimezone(UTC)
    text = english or f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return Text(text, {"at": f"{utc:%Y-%m-%dT%H:%M:%SZ}", "in": text})


def join(separator: str, texts: Iterable[str]) -> Text:
    """Texts in a row. The separator is the same in every language."""
    found = list(texts)
    return Text(separator.join(found), {"join": separator, "of": [_part_of(each) for each in found]})


def in_language(text: str, language: Language, at: Moments = lambda _at, english: english) -> str:
    """The sentence in this language. Words that nobody made with `said` stay as they are. `at` writes its moments."""
    return _translated(text.parts, language, at) if isinstance(text, Text) else text


def stored(text: str) -> str:
    """The form in which a column keeps it."""
    english = text.replace(_MARK, "")
    if not isinstance(text, Text):
        return english
    return f"{english}{_MARK}{json.dumps(text.parts, ensure_ascii=False, separators=(',', ':'))}"


def read(column: str) -> str:
    """What `stored` has written; also what was written before there were languages."""
    english, mark, made = column.partition(_MARK)
    return Text(english, made) if mark else column


def _parts_of(values: Mapping[str, object]) -> dict[str, Parts]:
    return {name: _part_of(value) for name, value in values.items()}


def _part_of(value: object) -> Parts:
    return value.parts if isinstance(value, Text) else str(value)


def _parsed(made: str) -> Parts | None:
    try:
        found = json.loads(made)
    except ValueError:
        return None
    known = isinstance(found, dict) and any(found.keys() >= kind for kind in _KINDS)
    return found if known else None


def _translated(parts: Parts, language: Language, at: Moments) -> str:
    if isinstance(parts, str):
        return parts
    if "join" in parts:
        return str(parts["join"]).join(_translated(each, language, at) for each in parts["of"])
    if "at" in parts:
        return at(parts["at"], parts["in"])
    values = {name: _translated(value, language, at) for name, value in parts["with"].items()}
    if "many" in parts:
        template = language.ngettext(parts["say"], parts["many"], parts["number"])
    else:
        template = language.gettext(parts["say"])
    return template.format_map(values)
