"""The page about the REST API: its calls and their types, as the description of the API (OpenAPI) has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext, gettext_noop

Schema = Mapping[str, Any]
KINDS = {
    "string": gettext_noop("text"),
    "integer": gettext_noop("whole number"),
    "number": gettext_noop("number"),
    "boolean": gettext_noop("true or false"),
    "object": gettext_noop("object"),
    "null": gettext_noop("null"),
    "": gettext_noop("anything"),
}
FORMATS = {"date-time": gettext_noop("time"), "binary": gettext_noop("bytes")}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is, in words. `type`: the name of the type that it, or each of it, has; or empty."""

    words: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a call or a field of a type. `values`: all that it may be, if they are few."""

    name: str
    kind: Kind
    required: bool
    text: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    text: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """`scope`: what a token needs; empty where none is needed. `body`, `answers`: kinds of content, and their types."""

    id: str
    method: str
    path: str
    summary: str
    scope: str
    text: str
    parameters: tuple[Field, ...]
    body: tuple[Kind, ...]
    answers: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The calls about one kind of thing, by which their addresses begin."""

    name: str
    calls: tuple[ApiCall, ...]


def groups(description: Schema) -> tuple[Group, ...]:
    found: dict[str, list[ApiCall]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append(_call(path, method, operation))
    return tuple(Group(name, tuple(calls)) for name, calls in sorted(found.items()))


def types_of(description: Schema, group: Group) -> tuple[Type, ...]:
    """The types that the calls name, and those that these name, in the order of their names."""
    known = description["components"]["schemas"]
    left = [kind.type for call in group.calls for kind in (*call.body, *call.answers) if kind.type]
    found: dict[str, Type] = {}
    while left:
        name = left.pop()
        if name not in found:
            found[name] = made = _type(name, known[name])
            left += [field.kind.type for field in made.fields if field.kind.type]
    return tuple(found[name] for name in sorted(found))


def _call(path: str, method: str, operation: Schema) -> ApiCall:
    given = operation["responses"]
    answer = next(given[status] for status in sorted(given) if status.startswith("2"))
    return ApiCall(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        scope=operation.get("x-scope", ""),
        text=operation["description"],
        parameters=tuple(
            _field(each["name"], each["schema"], each.get("required", False), each["description"])
            for each in operation.get("parameters", ())
        ),
        body=tuple(_contents(operation.get("requestBody", {}))),
        answers=tuple(_contents(answer)),
    )


def _contents(message: Schema) -> Iterator[Kind]:
    for media, content in message.get("content", {}).items():
        kind = _kind(content["schema"])
        yield kind if kind.type else Kind(media)


def _type(name: str, schema: Schema) -> Type:
    required = schema.get("required", ())
    fields = (
        _field(field, each, field in required, each.get("description", ""))
        for field, each in schema.get("properties", {}).items()
    )
    return Type(name, schema.get("description", ""), tuple(fields))


def _field(name: str, schema: Schema, required: bool, text: str) -> Field:
    values = tuple(str(value) for value in schema.get("enum", ()) if value is not None)
    return Field(name, _kind(schema), required, text, values)


def _kind(schema: Schema) -> Kind:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Kind(name, name)
    several = schema.get("anyOf") or schema.get("allOf")
    if several:
        return _joined(map(_kind, several))
    kinds = schema.get("type", "")
    if isinstance(kinds, list):
        return _joined(_kind({**schema, "type": kind}) for kind in kinds)
    if kinds == "array":
        each = _kind(schema["items"])
        return Kind(gettext("list of {kind}").format(kind=each.words), each.type)
    if kinds == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        each = _kind(schema["additionalProperties"])
        return Kind(gettext("object of {kind}").format(kind=each.words), each.type)
    if schema.get("format") in FORMATS:
        return Kind(gettext(FORMATS[schema["format"]]))
    return Kind(gettext(KINDS[kinds]))


def _joined(kinds: Iterable[Kind]) -> Kind:
    known = list(kinds)
    words = gettext(" or ").join(kind.words for kind in known)
    return Kind(words, next((kind.type for kind in known if kind.type), ""))
