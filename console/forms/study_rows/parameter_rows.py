"""Rows of the parameters of a study: a name, a kind, what values it has, and below which values of another it is there.

A row with a parent is a condition of the last row above that has the parent's name: so rows are a tree, written flat.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from django import forms
from django.forms.renderers import BaseRenderer
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents.infra.text import visible
from console.forms.study_rows.typed_numbers import number_or_text, text_of_number
from jobs.rules.spec.json_fields import camel
from jobs.rules.tuning.space import Kind, Scale
from jobs.rules.tuning.study import PARENT_VALUES

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
INPUTS = ("name", "kind", "low", "high", "values", "scale", "default", "parent", "when")
CONDITIONS = "conditionalParameterSpecs"


class ParameterRow(NamedTuple):
    """Texts as they were typed. `values`: of a listed kind, with commas between them. `when`: the values of `parent`
    for which it is there. `default`: the value of the first trial."""

    name: str = ""
    kind: str = Kind.DOUBLE
    low: str = ""
    high: str = ""
    values: str = ""
    scale: str = Scale.LINEAR
    default: str = ""
    parent: str = ""
    when: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.name or self.low or self.high or self.values or self.parent or self.when)

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
        if self.default:
            is_number = self.kind in (Kind.DOUBLE, Kind.DISCRETE)
            default = number_or_text(self.default) if is_number else self.default
            found[f"{self.kind.lower()}ValueSpec"]["defaultValue"] = default
        if self.scale != Scale.LINEAR:
            found["scaleType"] = str(self.scale)
        return found

    def _values(self) -> dict[str, Any]:
        if self.kind in LISTED:
            return {"values": _listed(self.values, self.kind)}
        ends = {"minValue": self.low, "maxValue": self.high}
        convert = number_or_text if self.kind == Kind.DOUBLE else str
        return {name: convert(text) for name, text in ends.items() if text}


def documents(rows: Iterable[ParameterRow]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """`parameters` of the StudySpec, and by the path of each parameter, as errors name it, the number of its row."""
    found: list[dict[str, Any]] = []
    paths: dict[str, int] = {}
    above: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for number, row in enumerate(rows, start=1):
        document = row.document()
        parent = above.get(row.parent) if row.parent else None
        if parent is None:
            path = f"study_spec.parameters[{len(found)}]"
            found.append(document)
        else:
            place, kind, below = parent
            conditions = below.setdefault(CONDITIONS, [])
            place = f"{place}.conditional_parameter_specs[{len(conditions)}]"
            values = camel(PARENT_VALUES.get(Kind(kind), PARENT_VALUES[Kind.CATEGORICAL]))
            conditions.append({values: {"values": _listed(row.when, kind)}, "parameterSpec": document})
            paths[place] = number
            path = f"{place}.parameter_spec"
        paths[path] = number
        above[row.name] = (path, row.kind, document)
    return found, paths


def _listed(text: str, kind: str) -> list[Any]:
    values = [each.strip() for each in re.split(r"[,\n]", text) if each.strip()]
    return [number_or_text(each) for each in values] if kind == Kind.DISCRETE else values


def rows_of(parameters: Iterable[Mapping[str, Any]]) -> Iterator[ParameterRow]:
    """The rows of the parameters of a canonical document, each before those below it."""
    for parameter in parameters:
        row = _row_of(parameter)
        yield row
        for condition in parameter.get(CONDITIONS, ()):
            values: Mapping[str, Any] = next(
                (condition[name] for name in map(camel, PARENT_VALUES.values()) if name in condition), {}
            )
            when = ", ".join(text_of_number(each) for each in values.get("values", ()))
            first, *below = rows_of([condition.get("parameterSpec", {})])
            yield first._replace(parent=row.name, when=when)
            yield from below


def _row_of(parameter: Mapping[str, Any]) -> ParameterRow:
    """What a row cannot show is left out."""
    kind = next((each for each in Kind if f"{each.lower()}ValueSpec" in parameter), Kind.DOUBLE)
    spec = parameter.get(f"{kind.lower()}ValueSpec", {})
    low, high = (text_of_number(spec[name]) if name in spec else "" for name in ("minValue", "maxValue"))
    values = ", ".join(text_of_number(each) for each in spec.get("values", ()))
    default = text_of_number(spec["defaultValue"]) if "defaultValue" in spec else ""
    return ParameterRow(
        parameter.get("parameterId", ""),
        kind,
        low,
        high,
        values,
        parameter.get("scaleType", Scale.LINEAR),
        default,
    )


class ParameterRows(forms.Widget):
    """Repeated inputs NAME-name, NAME-kind and so on, one of each in a row."""

    spare, folded = 2, 10

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> tuple[ParameterRow, ...]:
        if not isinstance(data, MultiValueDict):
            return ()
        columns = (data.getlist(f"{name}-{each}") for each in INPUTS)
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
            "folded": [ParameterRow()] * self.folded,
            "kinds": KINDS,
            "scales": SCALES,
        }
        return render_to_string("forms/parameter_rows.html", context)


def _known(row: ParameterRow) -> ParameterRow:
    """The browser may send anything as the kind and the scale."""
    kind = row.kind if row.kind in set(Kind) else Kind.DOUBLE
    return row._replace(kind=kind, scale=row.scale if row.scale in set(Scale) else Scale.LINEAR)


def _problem_of_condition(row: ParameterRow, above: Container[str]) -> str:
    """What is wrong with "only for": the parser would not see it."""
    if row.when and not row.parent:
        return _("these values are of which parameter? Write its name into the field before them.")
    if row.parent and row.parent not in above:
        return _(
            "no row above has the name {name}. A parameter stands below the one that it depends on."
        ).format(name=f"“{visible(row.parent)}”")
    return ""


class ParametersField(forms.Field):
    """The cleaned value is a tuple of ParameterRow. Which values are possible, the parser decides."""

    widget = ParameterRows

    def clean(self, value: Any) -> tuple[ParameterRow, ...]:
        rows: Iterable[ParameterRow] = value or ()
        wrong: list[str] = []
        above: set[str] = set()
        for number, row in enumerate(rows, start=1):
            problem = row.problem or _problem_of_condition(row, above)
            if problem:
                wrong.append(_("Row {number}: {problem}").format(number=number, problem=problem))
            above.add(row.name)
        if wrong:
            raise forms.ValidationError(wrong)
        return tuple(rows)
