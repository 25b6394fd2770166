"""Rows of the parameters of a study: a name, a kind, and what values it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from django import forms
from django.forms.renderers import BaseRenderer
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.rules.tuning.space import Kind, Scale

KINDS = (
    (Kind.DOUBLE, gettext_lazy("number (double)")),
    (Kind.INTEGER, gettext_lazy("whole number (integer)")),
    (Kind.CATEGORICAL, gettext_lazy("one of these names (categorical)")),
    (Kind.DISCRETE, gettext_lazy("one of these numbers (discrete)")),
)
SCALES = (
    (Scale.LINEAR, gettext_lazy("linear")),
    (Scale.LOG, gettext_lazy("logarithmic")),
    (Scale.REVERSE_LOG, gettext_lazy("reverse logarithmic")),
)
LISTED = frozenset({Kind.CATEGORICAL, Kind.DISCRETE})
# The inputs of a row. Those of all rows have the same names, and are sent in the order of the rows.
_INPUTS = ("name", "kind", "low", "high", "values", "scale")


class ParameterRow(NamedTuple):
    """Texts as they were typed. `values`: of a listed kind, with commas between them."""

    name: str = ""
    kind: str = Kind.DOUBLE
    low: str = ""
    high: str = ""
    values: str = ""
    scale: str = Scale.LINEAR

    @property
    def is_empty(self) -> bool:
        return not (self.name or self.low or self.high or self.values)

    @property
    def problem(self) -> str:
        """What the document would not say, and so would lose."""
        if self.kind in LISTED and (self.low or self.high):
            return _(
                "a listed parameter has no lowest and highest value. Write its values into the list, or choose another "
                "kind."
            )
        if self.kind not in LISTED and self.values:
            return _(
                "a number has a lowest and a highest value. Clear the list of values, or choose another kind."
            )
        return ""

    def document(self) -> dict[str, Any]:
        """The parameter as an item of `parameters` in the StudySpec. Text that is no number stays text: the parser says
        what is wrong with it."""
        found: dict[str, Any] = {"parameterId": self.name, f"{self.kind.lower()}ValueSpec": self._values()}
        if self.scale != Scale.LINEAR:
            found["scaleType"] = str(self.scale)
        return found

    def _values(self) -> dict[str, Any]:
        if self.kind in LISTED:
            values = [each.strip() for each in re.split(r"[,\n]", self.values) if each.strip()]
            return {"values": [_number(each) for each in values] if self.kind == Kind.DISCRETE else values}
        ends = {"minValue": self.low, "maxValue": self.high}
        convert = _number if self.kind == Kind.DOUBLE else str
        return {name: convert(text) for name, text in ends.items() if text}


def row_of(parameter: Mapping[str, Any]) -> ParameterRow:
    """The row of a parameter of a canonical document. What a row cannot show is left out."""
    kind = next((each for each in Kind if f"{each.lower()}ValueSpec" in parameter), Kind.DOUBLE)
    spec = parameter.get(f"{kind.lower()}ValueSpec", {})
    low, high = (_text(spec[name]) if name in spec else "" for name in ("minValue", "maxValue"))
    values = ", ".join(_text(each) for each in spec.get("values", ()))
    return ParameterRow(
        parameter.get("parameterId", ""), kind, low, high, values, parameter.get("scaleType", Scale.LINEAR)
    )


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: object) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


class ParameterRows(forms.Widget):
    """Repeated inputs NAME-name, NAME-kind and so on, one of each in a row."""

    spare = 2

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> tuple[ParameterRow, ...]:
        if not isinstance(data, MultiValueDict):
            return ()
        columns = (data.getlist(f"{name}-{each}") for each in _INPUTS)
        rows = [ParameterRow(*(text.strip() for text in row)) for row in zip_longest(*columns, fillvalue="")]
        return tuple(_known(row) for row in rows if not row.is_empty)

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return f"{name}-name" not in data

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        """Render with a template of ours. Django's form renderer finds only the templates of its own widgets."""
        rows = [*(value or ()), *[ParameterRow()] * self.spare]
        context = {
            "name": name,
            "id": (attrs or {}).get("id"),
            "rows": rows,
            "kinds": KINDS,
            "scales": SCALES,
        }
        return render_to_string("forms/parameter_rows.html", context)


def _known(row: ParameterRow) -> ParameterRow:
    """The browser may send anything as the kind and the scale."""
    kind = row.kind if row.kind in set(Kind) else Kind.DOUBLE
    return row._replace(kind=kind, scale=row.scale if row.scale in set(Scale) else Scale.LINEAR)


class ParametersField(forms.Field):
    """The cleaned value is a tuple of ParameterRow. Which values are possible, the parser decides."""

    widget = ParameterRows

    def clean(self, value: Any) -> tuple[ParameterRow, ...]:
        rows: Iterable[ParameterRow] = value or ()
        wrong = [
            _("Row {number}: {problem}").format(number=number, problem=row.problem)
            for number, row in enumerate(rows, start=1)
            if row.problem
        ]
        if wrong:
            raise forms.ValidationError(wrong)
        return tuple(rows)
