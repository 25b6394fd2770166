"""Compares each answer of our own API with its description, in every test that asks for one.

The description lets answers have more fields than it names, so that programs do not break when some are added. Here
they must not: a field that was added and not described fails.
"""

from __future__ import annotations

import copy
import json
from functools import cache

from django.urls import get_resolver
from jsonschema_rs import Draft202012Validator

from console.api.openapi import addresses
from console.api.openapi.view import description
from console.large_bodies import BodyWanted


class NotDescribed(AssertionError):
    """An answer that is not as the description says."""


class DescribedAnswers:
    """A middleware of the tests."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        answer = self.get_response(request)
        found = request.resolver_match
        if found is not None and str(found.route).startswith("^/*api/v1/") and not is_no_answer(answer):
            wrong = difference(operation_of(found, request.method), answer)
            if wrong:
                raise NotDescribed(f"{request.method} {request.path} → {answer.status_code}: {wrong}")
        return answer


def is_no_answer(answer):
    """A bug, whose exception a test sees; a wrong method; the wish for a large body."""
    return answer.status_code in (405, 500) or isinstance(answer, BodyWanted)


def difference(operation, answer):
    """How an answer is not as its operation says; empty if it is."""
    if operation is None:
        return ""
    said = operation["responses"]
    status = str(answer.status_code)
    wanted = said.get(status) or said.get(f"{status[0]}XX")
    if wanted is None:
        return f"this status is not among {', '.join(said)}"
    kinds = resolved(wanted).get("content", {})
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    if not kinds or "*/*" in kinds and kind not in kinds:
        return ""
    if kind not in kinds:
        return f"{kind or 'no content'} is not among {', '.join(kinds)}"
    if kind != "application/json" or answer.streaming:
        return ""
    body = json.loads(answer.content)
    problem = next(iter(validator(json.dumps(kinds[kind]["schema"])).iter_errors(body)), None)
    return f"{'/'.join(map(str, problem.instance_path))}: {problem.message}" if problem else ""


def operation_of(found, method):
    """The operation of a request. None for methods that have none."""
    named = endpoints_of(str(found.route))
    act = next((value for value in found.kwargs.values() if (value, method.lower()) in named), "")
    path = named.get((act, method.lower()))
    return description()["paths"][path][method.lower()] if path else None


@cache
def endpoints_of(route):
    """(act, method) → path."""
    pattern = next(each for each in flat(get_resolver()) if str(each.pattern) == route)
    return {(each.act, each.method): each.path for each in addresses.endpoints([pattern])}


def flat(resolver):
    for each in resolver.url_patterns:
        yield from flat(each) if hasattr(each, "url_patterns") else [each]


def resolved(node):
    return components()["responses"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


@cache
def components():
    """Those of the description, closed."""
    known = copy.deepcopy(description()["components"])
    for schema in known["schemas"].values():
        schema["additionalProperties"] = False
    return known


@cache
def validator(schema):
    return Draft202012Validator({**json.loads(schema), "components": components()}, validate_formats=True)
