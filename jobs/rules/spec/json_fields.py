"""Read proto3 JSON as clients really send it, and collect all violations instead of stopping at the first.

Google's clients send camelCase or snake_case keys, integers as strings or as `2.0`, enums as numbers or as names, and
`null` for anything. All these forms are read here, in one place. Any other value is a `Violation` that names the field
by its path in the message (`job_spec.worker_pool_specs[1].replica_count`), as google.rpc.BadRequest does.

The document may come from anywhere, so it is not trusted: unknown values are not walked through, no value is printed in
full length, and no text is accepted that cannot be written as UTF-8.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from agents.infra.texts import HIDDEN_LETTER, join, said
from jobs.rules.list_text import list_text

# A hostile document must not make the answer huge: nobody reads more violations than this.
MAX_VIOLATIONS = 100

# At most so many names are listed; of more, those that resemble what was typed.
FEW = 8
N = TypeVar("N")
_NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}(\.0+)?", re.ASCII)
_DURATION = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Violation:
    """One field and what is wrong with it, as text for the person who wrote it."""

    field: str
    description: str


class InvalidDocument(Exception):
    """The document is not valid. Each violation names a field and says what is wrong with it."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        words = "; ".join(f"{each.field}: {each.description.rstrip('.')}" for each in violations)
        super().__init__(f"{words}.")
        self.violations = violations


class Complaints:
    """The violations found so far."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []
        self._fields: set[str] = set()

    def about(self, field: str) -> bool:
        return field in self._fields

    def add(self, field: str, description: str) -> None:
        self._fields.update((field, re.sub(r"\[[0-9]+\]$", "", field)))
        if len(self._violations) < MAX_VIOLATIONS:
            self._violations.append(Violation(field, description))

    def raise_if_any(self) -> None:
        if self._violations:
            raise InvalidDocument(tuple(self._violations))


class MessageReader:
    """Reads one message of a document. Fields are taken out one by one; those that are left at `close` are unknown."""

    def __init__(self, document: object, path: str, complaints: Complaints) -> None:
        self.path = path
        self._complaints = complaints
        self._left: dict[object, object] = {}
        if isinstance(document, Mapping):
            self._left = dict(document)
        self._broken = not isinstance(document, Mapping) and document is not None
        if self._broken:
            complaints.add(path or "document", said("must be an object, not {value}.", value=shown(document)))
        self.empty = all(value is None for value in self._left.values())

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def complain(self, name: str, description: str) -> None:
        if not self._broken:  # a value that is not an object has one violation already
            self._complaints.add(self.at(name), description)

    def complained(self, name: str) -> bool:
        """Has this field, or an item of it, a violation already? Then a consequence of it needs no second one."""
        return self._complaints.about(self.at(name))

    def has(self, name: str) -> bool:
        """Whether the field is given and not null. It is not taken out."""
        return any(self._left.get(key) is not None for key in (name, camel(name)))

    def value(self, name: str) -> object:
        """The value as it was sent. It is not taken out."""
        return next((self._left[key] for key in (name, camel(name)) if self._left.get(key) is not None), None)

    def take(self, name: str) -> object:
        """The value under the snake_case or the camelCase name; None when absent or null."""
        found = [self._left.pop(key) for key in dict.fromkeys((name, camel(name))) if key in self._left]
        if len(found) > 1:
            self.complain(
                name, said("is given twice, as {name} and as {other}.", name=name, other=camel(name))
            )
        return found[0] if found else None

    def text(self, name: str, *, maximum: int = 2048, printable: bool = True) -> str:
        """A string of at most `maximum` characters; "" when absent."""
        value = self.take(name)
        if value is None:
            return ""
        problem = text_problem(value, printable)
        if problem is None and isinstance(value, str):
            if len(value) <= maximum:
                return value
            problem = said(
                "has {number} characters; at most {most} are possible.", number=len(value), most=maximum
            )
        self.complain(name, problem or "")
        return ""

    def texts(self, name: str, *, maximum: int, printable: bool = False) -> tuple[str, ...]:
        """A list of strings. Its items may hold anything that an argument of a program can."""
        texts: list[str] = []
        for index, value in enumerate(self._items(name, maximum)):
            problem = text_problem(value, printable)
            if problem is not None:
                self.complain(f"{name}[{index}]", problem)
            elif isinstance(value, str):
                texts.append(value)
        return tuple(texts)

    def whole(self, name: str, *, default: int, minimum: int, maximum: int) -> int:
        """An integer in any of the forms that clients send. A number out of bounds is a violation."""
        value = self.take(name)
        if value is None:
            return default
        number = _integer(value)
        if number is None:
            self.complain(name, _no_whole_number(value))
            return default
        if not minimum <= number <= maximum:
            self.complain(
                name,
                said(
                    "must be from {minimum} to {maximum}, not {value}.",
                    minimum=minimum,
                    maximum=maximum,
                    value=shown(number),
                ),
            )
            return default
        return number

    def number(self, name: str, default: float | None = None) -> float | None:
        """A finite number, or its decimal text. Neither NaN nor infinity."""
        value = self.take(name)
        if value is None:
            return default
        number = _finite(value)
        if number is None:
            self.complain(name, _no_number(value))
            return default
        return number

    def numbers(self, name: str, *, maximum: int) -> tuple[float, ...]:
        """A list of finite numbers."""
        return self._each(name, maximum, _finite, _no_number)

    def wholes(self, name: str, *, maximum: int) -> tuple[int, ...]:
        """A list of integers in any of the forms that clients send."""
        return self._each(name, maximum, _integer, _no_whole_number)

    def switch(self, name: str) -> bool:
        value = self.take(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.complain(name, said("must be true or false, not {value}.", value=shown(value)))
        return False

    def choice(
        self,
        name: str,
        names: Mapping[int, str],
        *,
        also: re.Pattern[str] | None = None,
        here: Collection[str] = (),
    ) -> str:
        """The name of an enum value that the document gives by name or by number.

        An absent value is names[0]. A wrong value is a violation, and names[0] stands for it until all are reported.
        `also`: a pattern of further names that are accepted. `here`: the names that exist in this deployment; the
        violation lists them.
        """
        value = self.take(name)
        if value is None:
            return names[0]
        if isinstance(value, str) and (value in names.values() or (also and also.fullmatch(value))):
            return value
        number = None if isinstance(value, str) else _integer(value)
        if number is not None and number in names:
            return names[number]
        self.complain(
            name,
            said(
                "is not a known value: {value}. {known}",
                value=shown(value),
                known=_known(value, names, here),
            ),
        )
        return names[0]

    def seconds(self, name: str) -> float | None:
        """A Duration such as "3600s" or "3.5s"; None when absent."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, str) and _DURATION.fullmatch(value):
            return float(value[:-1])
        self.complain(
            name, said('must be a duration such as "3600s" or "3.5s", not {value}.', value=shown(value))
        )
        return None

    def message(self, name: str) -> MessageReader:
        """The fields of a nested message; no fields when it is absent."""
        return MessageReader(self.take(name), self.at(name), self._complaints)

    def messages(self, name: str, *, maximum: int) -> list[MessageReader]:
        items = self._items(name, maximum)
        return [
            MessageReader(item, f"{self.at(name)}[{index}]", self._complaints)
            for index, item in enumerate(items)
        ]

    def pairs(self, name: str, *, maximum: int) -> dict[str, object]:
        """A map with string keys; its values are not checked."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.complain(name, said("must be an object, not {value}.", value=shown(value)))
            return {}
        if len(value) > maximum:
            self.complain(
                name,
                said(
                    "has {number} entries; at most {most} are possible.",
                    number=len(value),
                    most=maximum,
                ),
            )
            return {}
        return {str(key): item for key, item in value.items()}

    def unsupported(self, name: str, why: str) -> None:
        """Refuse a field that would change what happens and is not supported: it is never ignored silently."""
        if self.take(name) not in (None, "", 0, False, [], {}):
            self.complain(name, why)

    def ignore(self, *names: str) -> None:
        for name in names:
            self._left.pop(name, None)
            self._left.pop(camel(name), None)

    def close(self) -> None:
        for key in self._left:
            self.complain(_safe(str(key)) or '""', said("is not a field of this message."))

    def _each(
        self, name: str, maximum: int, read: Callable[[object], N | None], problem: Callable[[object], str]
    ) -> tuple[N, ...]:
        numbers: list[N] = []
        for index, value in enumerate(self._items(name, maximum)):
            number = read(value)
            if number is None:
                self.complain(f"{name}[{index}]", problem(value))
            else:
                numbers.append(number)
        return tuple(numbers)

    def _items(self, name: str, maximum: int) -> list[object]:
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.complain(name, said("must be a list, not {value}.", value=shown(value)))
            return []
        if len(value) > maximum:
            self.complain(
                name,
                said("has {number} items; at most {most} are possible.", number=len(value), most=maximum),
            )
            return []
        return list(value)


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def shown(value: object) -> str:
    """A value for a message, short and in ASCII. Containers and huge numbers are only described."""
    if isinstance(value, Mapping):
        return said("an object")
    if isinstance(value, list | tuple):
        return said("a list")
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 80:
        return said("a huge number")
    if isinstance(value, str):
        return f'"{_safe(value)}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return f"a {type(value).__name__}"


def duration(seconds: float) -> str:
    """Seconds as a proto3 Duration, exact to the nanosecond, which is the limit of the format."""
    digits = f"{seconds:.9f}".rstrip("0").rstrip(".")
    return f"{digits}s"


def _safe(text: str) -> str:
    plain = text[:60].encode("ascii", "backslashreplace").decode("ascii")
    plain = "".join(char if char.isprintable() else "?" for char in plain)
    return plain if len(text) <= 60 else f"{plain}..."


def text_problem(value: object, printable: bool) -> str | None:
    """What is wrong with a value that is to be a text. None if nothing is."""
    if not isinstance(value, str):
        return said("must be a string, not {value}.", value=shown(value))
    if "\0" in value:
        return said("must not hold a NUL character.")
    if printable and any(ord(char) < 32 or ord(char) == 127 for char in value):
        return said("must not hold control characters.")
    if printable and (hidden := HIDDEN_LETTER.search(value)):
        return said("must not hold the invisible character {code}.", code=f"U+{ord(hidden[0]):04X}")
    try:
        value.encode()
    except UnicodeEncodeError:
        return said("holds half of a surrogate pair, which is not text.")
    return None


def _no_number(value: object) -> str:
    return said("must be a number, not {value}.", value=shown(value))


def _no_whole_number(value: object) -> str:
    return said("must be a whole number, not {value}.", value=shown(value))


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value.partition(".")[0])
    return None


def _any_of(names: Sequence[str]) -> str:
    return reduce(lambda one, other: said("{one} or {other}", one=one, other=other), names)


def _known(value: object, names: Mapping[int, str], here: Collection[str]) -> str:
    """Which value was probably meant, and which values exist. A list of dozens helps nobody."""
    there = said("Hosts here have {types}.", types=", ".join(sorted(here)[:FEW])) if here else ""
    known = list(dict.fromkeys([*sorted(here), *list(names.values())[1:]]))
    typed = value[:64].upper() if isinstance(value, str) else ""
    near = [name for name in known if len(typed) > 1 and typed in name][:3]
    near = near or difflib.get_close_matches(typed, known, n=3, cutoff=0.5)
    if near and len(known) > FEW:
        meant = said("Did you mean {names}?", names=_any_of(near))
        return join(" ", [meant, there]) if there else meant
    if there:
        return there
    return said("Known are {names}.", names=list_text(known, FEW))
