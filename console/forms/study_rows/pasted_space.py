"""A pasted space: the parameters of Vertex, Katib or Weights & Biases, as JSON or YAML, become those of a StudySpec.

Values are taken over as they are, and the parser of studies says what is wrong with them. What a row of the form could
not show is refused here, so nothing is lost without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.forms.study_rows.parameter_rows import CONDITIONS, ParameterRow, rows_of
from jobs.rules.spec.json_fields import camel
from jobs.rules.tuning.parse_parameters import MAX_PARAMETERS
from jobs.rules.tuning.space import Kind, Scale
from jobs.rules.tuning.study import PARENT_VALUES

# Reading so many takes half a second.
MAX_TEXT = 30_000
_SPECS = {kind: f"{kind.lower()}ValueSpec" for kind in Kind}
_OF_VALUES = {"minValue", "maxValue", "values", "defaultValue"}
_PARENTS = {camel(name) for name in PARENT_VALUES.values()}
_KATIB = {
    "double": Kind.DOUBLE,
    "int": Kind.INTEGER,
    "categorical": Kind.CATEGORICAL,
    "discrete": Kind.DISCRETE,
}
# What the loader raises: also of "!!bool x", "!!timestamp x", half letters and numbers on base 60 that are too large.
_UNREADABLE = (
    *(yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    RecursionError,
)
_LOG = {"logUniform", "log_uniform_values", "q_log_uniform_values"}
_EVEN = {"", "uniform", "int_uniform", "q_uniform", "constant", "categorical"}


class UnreadableSpace(ValueError):
    """The message says what is wrong, and what to do."""


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them stand for billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise UnreadableSpace(_("The text has an alias (*name). Write the value out."))
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:
        found = super().construct_scalar(node)
        # An escape may make half a letter, which no page can show.
        str(found).encode()
        return found


def pasted_rows(text: str, above: int = 0) -> list[ParameterRow]:
    """The parameters as rows of the form, which has so many `above` them. Raises UnreadableSpace."""
    try:
        rows = list(rows_of(read_space(text)))
    except UnreadableSpace:
        raise
    except (ArithmeticError, TypeError, ValueError, RecursionError):
        # A list where a number belongs, a number of a thousand digits, and so on.
        raise UnreadableSpace(
            _(
                "The text has a value that no parameter can have. Compare it with the parameters of Vertex, Katib or "
                "Weights & Biases."
            )
        ) from None
    if above + len(rows) > MAX_PARAMETERS:
        raise UnreadableSpace(
            _("The study would have {number} parameters. Give at most {most}.").format(
                number=above + len(rows), most=MAX_PARAMETERS
            )
        )
    return rows


def read_space(text: str) -> list[dict[str, Any]]:
    """The parameters of a StudySpec. Raises UnreadableSpace."""
    if len(text) > MAX_TEXT:
        raise UnreadableSpace(
            _("The text is too long. Give at most {most} characters.").format(most=MAX_TEXT)
        )
    try:
        found = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except UnreadableSpace:
        raise
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        place = _("line {number}").format(number=mark.line + 1) if mark else type(error).__name__
        raise UnreadableSpace(_("The text is neither JSON nor YAML: {place}.").format(place=place)) from None
    parameters = _parameters(found)
    if isinstance(parameters, Mapping):
        return [_of_wandb(str(name), each) for name, each in parameters.items()]
    if not isinstance(parameters, list) or not parameters:
        raise UnreadableSpace(
            _("No parameters were found. Paste the list below `parameters`, or a document that has it.")
        )
    return [_of_list(each) for each in parameters]


def _parameters(found: Any) -> Any:
    """The parameters below the fields that documents have around them."""
    for name in ("studySpec", "study_spec", "spec", "parameters"):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
    return found


def _of_list(each: Any) -> dict[str, Any]:
    if isinstance(each, Mapping) and "feasibleSpace" in each:
        return _of_katib(each)
    if not isinstance(each, Mapping) or not {"parameterId", "parameter_id"} & set(each):
        raise UnreadableSpace(_("A parameter needs a parameterId, or a name with a feasibleSpace."))
    return _of_vertex(_camel(each))


def _camel(value: Any) -> Any:
    """Names of fields as JSON has them; gcloud's YAML has either."""
    if isinstance(value, Mapping):
        return {camel(str(name)): _camel(each) for name, each in value.items()}
    return [_camel(each) for each in value] if isinstance(value, list) else value


def _of_vertex(each: Mapping[str, Any]) -> dict[str, Any]:
    name = str(each.get("parameterId", ""))
    kind = next((kind for kind in Kind if _SPECS[kind] in each), None)
    if kind is None:
        raise UnreadableSpace(
            _("{name}: a parameter needs one of {fields}.").format(
                name=visible(name), fields=", ".join(_SPECS.values())
            )
        )
    own = _only(name, each, {"parameterId", _SPECS[kind], "scaleType", CONDITIONS})
    values = _only(name, own[_SPECS[kind]], _OF_VALUES)
    found = _parameter(name, kind, values, own.get("scaleType") or Scale.LINEAR)
    below = [_condition(name, condition) for condition in own.get(CONDITIONS) or ()]
    return {**found, **({CONDITIONS: below} if below else {})}


def _condition(name: str, condition: Any) -> dict[str, Any]:
    known = _only(name, condition, {"parameterSpec", *_PARENTS})
    parents = {key: _only(name, known[key], {"values"}) for key in known if key in _PARENTS}
    below = known.get("parameterSpec")
    if not isinstance(below, Mapping):
        raise UnreadableSpace(_("{name}: a condition needs a parameterSpec.").format(name=visible(name)))
    return {**parents, "parameterSpec": _of_vertex(below)}


def _only(name: str, found: Any, known: set[str]) -> Mapping[str, Any]:
    more = sorted(str(each) for each in set(found) - known) if isinstance(found, Mapping) else [str(found)]
    if more:
        raise UnreadableSpace(
            _(
                "{name}: the form has no field for {field}. Show the study as JSON, and write it there."
            ).format(name=visible(name), field=visible(more[0]))
        )
    assert isinstance(found, Mapping)
    return found


def _of_katib(each: Mapping[str, Any]) -> dict[str, Any]:
    name, space = str(each.get("name", "")), each["feasibleSpace"]
    kind = _KATIB.get(str(each.get("parameterType", "")))
    if kind is None:
        raise UnreadableSpace(
            _("{name}: its parameterType must be one of {kinds}.").format(
                name=visible(name), kinds=", ".join(_KATIB)
            )
        )
    space = _only(name, space, {"min", "max", "list", "distribution"})
    return _parameter(name, kind, _values(space, "list"), _scale(name, space))


def _of_wandb(name: str, each: Any) -> dict[str, Any]:
    space = _only(name, each, {"min", "max", "values", "value", "distribution"})
    if "value" in space:
        space = {**{key: own for key, own in space.items() if key != "value"}, "values": [space["value"]]}
    values = space.get("values")
    if isinstance(values, list):
        kind = Kind.DISCRETE if all(_is_number(one) for one in values) else Kind.CATEGORICAL
        values = sorted(values, key=float) if kind is Kind.DISCRETE else values
        return _parameter(name, kind, {"values": values}, Scale.LINEAR)
    ends = [space.get("min"), space.get("max")]
    whole = (
        all(isinstance(end, int) for end in ends)
        and space.get("distribution", "int_uniform") == "int_uniform"
    )
    return _parameter(
        name, Kind.INTEGER if whole else Kind.DOUBLE, _values(space, "values"), _scale(name, space)
    )


def _values(space: Mapping[str, Any], listed: str) -> dict[str, Any]:
    names = {"min": "minValue", "max": "maxValue", listed: "values"}
    return {names[name]: value for name, value in space.items() if name in names and value is not None}


def _scale(name: str, space: Mapping[str, Any]) -> Scale:
    asked = str(space.get("distribution") or "")
    if asked not in _LOG | _EVEN:
        raise UnreadableSpace(
            _("{name}: the distribution {asked} is not known here. Use uniform or logUniform.").format(
                name=visible(name), asked=visible(asked)
            )
        )
    return Scale.LOG if asked in _LOG else Scale.LINEAR


def _parameter(name: str, kind: Kind, values: Mapping[str, Any], scale: str) -> dict[str, Any]:
    own = dict(values)
    listed = own.get("values")
    if listed is not None:
        listed = listed if isinstance(listed, list) else [listed]
        own["values"] = [each if kind is Kind.DISCRETE else _text(each) for each in listed]
    return {"parameterId": name, _SPECS[kind]: own, "scaleType": str(scale)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """YAML reads `true` and `no` as truth values; programs get what was written most likely."""
    return str(value).lower() if isinstance(value, bool) else str(value)
