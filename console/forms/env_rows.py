"""Rows of environment variables: a value that everybody may read, a secret value, or a stored secret.

A secret value is sent by the browser and never sent back to it: the row is shown without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

from django import forms
from django.forms.renderers import BaseRenderer
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from jobs.rules.spec.secret_variables import PERSON, PROJECT

PLAIN, SECRET, STORED = "plain", "secret", "stored"
# The inputs of a row. Those of all rows have the same names, and are sent in the order of the rows.
_INPUTS = ("name", "value", "kind", "stored")


class EnvRow(NamedTuple):
    """`stored` names a stored secret: NAME, or project/NAME or person/NAME where it matters whose it is."""

    name: str
    value: str = ""
    kind: str = PLAIN
    stored: str = ""

    @property
    def shown(self) -> EnvRow:
        """The row as a page may show it."""
        return self._replace(value="") if self.kind != PLAIN else self

    def document(self) -> dict[str, Any]:
        """The variable as an item of `env` in the CustomJob document."""
        if self.kind == SECRET:
            return {"name": self.name, "value": self.value, "secret": True}
        if self.kind == STORED:
            of, slash, stored = self.stored.strip().partition("/")
            source = (
                {"secret": stored, "of": of}
                if slash and of in (PERSON, PROJECT)
                else {"secret": self.stored.strip()}
            )
            return {"name": self.name, "valueFrom": source}
        return {"name": self.name, "value": self.value}


EMPTY = EnvRow("")


def row_of(item: Mapping[str, Any]) -> EnvRow:
    """The row of an item of `env` in a canonical document."""
    source = item.get("valueFrom")
    if source:
        of = f"{source['of']}/" if source.get("of") else ""
        return EnvRow(item["name"], kind=STORED, stored=f"{of}{source['secret']}")
    return EnvRow(item["name"], item.get("value", ""), SECRET if item.get("secret") else PLAIN)


def read_rows(data: Mapping[str, Any], name: str) -> tuple[EnvRow, ...]:
    """The rows that a browser sent. Empty ones do not count."""
    if not isinstance(data, MultiValueDict):
        return ()
    columns = (data.getlist(f"{name}-{each}") for each in _INPUTS)
    rows = [
        EnvRow(*(text.replace("\r\n", "\n") for text in row)) for row in zip_longest(*columns, fillvalue="")
    ]
    known = [row if row.kind in (SECRET, STORED) else row._replace(kind=PLAIN) for row in rows]
    return tuple(row for row in known if row.name.strip() or row.value or row.stored.strip())


def add_rows(data: QueryDict, name: str, rows: Iterable[EnvRow]) -> None:
    """Add rows to what a browser sent, as if they had been typed."""
    every = [*read_rows(data, name), *rows]
    for each in _INPUTS:
        data.setlist(f"{name}-{each}", [getattr(row, each) for row in every])


class EnvRows(forms.Widget):
    """Repeated inputs NAME-name, NAME-value, NAME-kind and NAME-stored, one of each in a row."""

    spare, folded = 2, 6

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> tuple[EnvRow, ...]:
        return read_rows(data, name)

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return f"{name}-name" not in data

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        """Render with a template of ours. Django's form renderer finds only the templates of its own widgets."""
        rows = [*(row.shown for row in value or ()), *[EMPTY] * self.spare]
        language = get_language() or ""
        folded = _folded(name, len(rows), self.folded, language) if self.folded else ""
        first = (attrs or {}).get("id")
        drawn = [
            (_empty_row if row == EMPTY else _row)(name, row, number, "" if number > 1 else first, language)
            for number, row in enumerate(rows, start=1)
        ]
        return render_to_string("forms/env_rows.html", {"name": name, "rows": drawn, "folded": folded})


def _row(name: str, row: EnvRow, counter: int, input_id: str | None, _language: str) -> SafeString:
    context = {"name": name, "row": row, "counter": counter, "input_id": input_id}
    return render_to_string("forms/env_row.html", context)


# The same in every form.
_empty_row = lru_cache(maxsize=256)(_row)


@lru_cache(maxsize=256)
def _folded(name: str, above: int, count: int, _language: str) -> SafeString:
    """Empty rows for browsers without scripts. They are the same in every form, so they are rendered once."""
    counters = range(above + 1, above + count + 1)
    return render_to_string("forms/env_folded.html", {"name": name, "row": EMPTY, "counters": counters})


class EnvField(forms.Field):
    """The cleaned value is a tuple of EnvRow. A value without a name is kept, so that the parser of the document can
    refuse it."""

    widget = EnvRows

    def clean(self, value: Any) -> tuple[EnvRow, ...]:
        rows = tuple(row._replace(name=row.name.strip()) for row in value or ())
        wrong = [
            text.format(row=number, name=row.name)
            for number, row in enumerate(rows, start=1)
            for text in (_missing(row),)
            if text
        ]
        if wrong:
            raise forms.ValidationError(wrong)
        return rows


def _missing(row: EnvRow) -> str:
    if row.kind == SECRET and not row.value:
        return _(
            "Row {row}: type the value of {name}. It is secret, so it was not kept: type it once more, or use a stored "
            "secret."
        )
    if row.kind == STORED and not row.stored.strip():
        return _("Row {row}: name the stored secret that {name} is to have.")
    return ""
