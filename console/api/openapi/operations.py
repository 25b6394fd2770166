"""A call of the API as an operation of OpenAPI: what code knows, and what `described` adds."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from console.api.description import ACCOUNT, ANYBODY, EVERYBODY, Call
from console.api.openapi.addresses import ROOT, TEXTS, Endpoint
from console.api.openapi.schemas import Schema, schema_of
from console.auth.access import BY_SCOPE
from console.auth.scopes import Scope

SINGULAR = {"people": "person", "quotas": "quota", "defaultQuotas": "defaultQuota"}
VERBS = {"post": "create", "put": "put", "patch": "change", "delete": "delete"}
RANGE = OpenApiParameter(
    "Range",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="Of the bytes, only these: `bytes=0-1023`.",
)
BYTES = {"type": "string", "format": "binary"}
ERROR = {"$ref": "#/components/responses/Error"}


class Operation(AutoSchema):
    """Is made for one call, where the package would guess from the view."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self.endpoint = endpoint

    @property
    def call(self) -> Call:
        found = self.endpoint.call
        if found is None:
            raise LookupError(f"{self.method} {self.path} is not described (console/api/description.py)")
        return found

    def _get_filter_parameters(self) -> list[Schema]:
        return []

    def _get_pagination_parameters(self) -> list[Schema]:
        return []

    def get_operation_id(self) -> str:
        return operation_id(self.endpoint.method, self.endpoint.path)

    def get_summary(self) -> str:
        return self.call.summary

    def get_description(self) -> str:  # type: ignore[override]
        said = [self._scope_text()]
        if self.call.confirmed:
            said.append(f"The token must be one that may {self.call.confirmed}: tick it when you make it.")
        return " ".join(filter(None, said))

    def get_tags(self) -> list[str]:
        return [re.split("[/:{.]", self.endpoint.path.removeprefix(ROOT))[0]]

    def get_auth(self) -> list[dict[str, list[str]]]:
        return [] if self.call.needs == EVERYBODY else [{"token": []}]

    def get_extensions(self) -> dict[str, Any]:
        scope = scope_of(self.call, self.endpoint)
        return {"x-scope": scope.value} if scope else {}

    def _scope_text(self) -> str:
        scope = scope_of(self.call, self.endpoint)
        return f"A token needs the scope `{scope.value}`." if scope else "No token is needed."

    def get_override_parameters(self) -> list[Any]:
        in_path = [
            OpenApiParameter(
                name,
                {"type": "string", "pattern": f"^{form}$"},
                OpenApiParameter.PATH,
                required=True,
                description=TEXTS[name],
            )
            for name, form in self.endpoint.parameters.items()
        ]
        behind = [
            OpenApiParameter(
                each.name,
                schema_of(each.type, self.registry),
                OpenApiParameter.QUERY,
                required=each.required,
                description=each.text,
            )
            for each in self.call.query
        ]
        return [*in_path, *behind, *([RANGE] if 206 in self.call.statuses else [])]

    def _get_request_body(self, direction: str = "request") -> Schema | None:
        body = self.call.body
        if body is None:
            return None
        if body is bytes:
            content: Schema = {"application/octet-stream": {"schema": BYTES}}
        else:
            content = {"application/json": {"schema": schema_of(body, self.registry, closed=True)}}
        return {"content": content, "required": True}

    def _get_response_bodies(self, direction: str = "response") -> Schema:
        call = self.call
        content: Schema = {}
        if call.answer is not None:
            content["application/json"] = {"schema": schema_of(call.answer, self.registry)}
        for kind in call.files:
            content[kind] = {"schema": {} if kind == "application/yaml" else BYTES}
        found: Schema = {
            str(status): {"description": "What was asked for.", "content": content}
            for status in call.statuses
        }
        if self.method == "GET" and call.answer is not None:
            found["304"] = {
                "description": "Nothing has changed since the answer with the `ETag` in `If-None-Match`."
            }
        return {**found, "4XX": ERROR, "503": ERROR}


def scope_of(call: Call, endpoint: Endpoint) -> Scope | None:
    """The least scope of a token that may do it. None where no token is needed."""
    needs = needs_of(call, endpoint)
    if needs == EVERYBODY:
        return None
    if needs == ANYBODY or (needs == ACCOUNT and endpoint.method == "get"):
        return Scope.READ
    if needs == ACCOUNT:
        return Scope.ADMIN
    return next(scope for scope in Scope if needs in BY_SCOPE[scope])


def needs_of(call: Call, endpoint: Endpoint) -> str:
    """The verb that decides, or who may."""
    own = call.own if "project" not in endpoint.parameters else ""
    return own or getattr(endpoint.callback.cls, "needs", "") or call.needs


def operation_id(method: str, path: str) -> str:
    """`listHosts`, `getHost`, `cordonHost`, `listProjectBuckets`: by the address, so it stays while that stays."""
    path, _, act = path.removeprefix(ROOT).partition(":")
    parts = re.split(r"[/.]", path)
    words = [
        _singular(part) if place + 1 < len(parts) and parts[place + 1].startswith("{") else part
        for place, part in enumerate(parts)
        if not part.startswith("{")
    ]
    last = parts[-1]
    if method == "get":
        verb = "list" if last.endswith("s") or last == "people" else "get"
    elif method == "post" and act:
        verb = act
    else:
        verb = VERBS[method]
        words[-1] = _singular(words[-1])
    return verb + "".join(word[:1].upper() + word[1:] for word in words)


def _singular(word: str) -> str:
    return SINGULAR.get(word, word.removesuffix("s"))
