"""Types as JSON Schema. A TypedDict becomes a named schema, which others refer to."""

from __future__ import annotations

import inspect
import types
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent

from console.api.description import Form

Schema = dict[str, Any]
BASIC: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Any: {},
    object: {},
}


def schema_of(hint: Any, registry: ComponentRegistry, closed: bool = False) -> Schema:
    """`closed`: of a body, in which a field that is not named is refused."""
    if hint in BASIC:
        return dict(BASIC[hint])
    if is_typeddict(hint):
        return _named(hint, registry, closed)
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return {"type": "string", "enum": [each.value for each in hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments, registry, closed)
    if origin in (Required, NotRequired):
        return schema_of(arguments[0], registry, closed)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _one_of(arguments, registry, closed)
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(arguments[0], registry, closed)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], registry, closed)}
    raise TypeError(f"{hint} has no schema")


def _annotated(arguments: tuple[Any, ...], registry: ComponentRegistry, closed: bool) -> Schema:
    schema = schema_of(arguments[0], registry, closed)
    for extra in arguments[1:]:
        words = dict(extra.words) if isinstance(extra, Form) else {"description": str(extra)}
        schema = {"allOf": [schema], **words} if "$ref" in schema else {**schema, **words}
    return schema


def _one_of(arguments: tuple[Any, ...], registry: ComponentRegistry, closed: bool) -> Schema:
    kinds = [schema_of(each, registry, closed) for each in arguments if each is not type(None)]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if len(kinds) == len(arguments):
        return schema
    if "$ref" in schema or "anyOf" in schema:
        return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    enum = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **enum} if "type" in schema else schema


def _named(hint: Any, registry: ComponentRegistry, closed: bool) -> Schema:
    component = ResolvedComponent(hint.__name__, ResolvedComponent.SCHEMA, object=hint)
    if component not in registry:
        # First without its fields: a type may lead back to itself.
        registry.register(component)
        component.schema = _object(hint, registry, closed)
    elif registry[component].object is not hint:
        raise TypeError(f"two types are called {hint.__name__}")
    ref: Schema = registry[component].ref
    return ref


def _object(hint: Any, registry: ComponentRegistry, closed: bool) -> Schema:
    fields = get_type_hints(hint, include_extras=True)
    # `__required_keys__` does not see NotRequired in annotations that are texts.
    required = [
        name
        for name in fields
        if name in hint.__required_keys__ and get_origin(fields[name]) is not NotRequired
    ]
    return {
        "type": "object",
        "description": inspect.cleandoc(hint.__doc__ or ""),
        "properties": {name: schema_of(each, registry, closed) for name, each in fields.items()},
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if closed else {}),
    }
