"""Writes the description of our own API (OpenAPI 3.1). Imported when somebody asks for it: that takes a while."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.plumbing import normalize_result_object, sanitize_result_object
from drf_spectacular.renderers import OpenApiYamlRenderer

from console.api.errors import ErrorAnswer
from console.api.openapi.addresses import endpoints
from console.api.openapi.operations import Operation
from console.api.openapi.schemas import Schema, schema_of
from console.client import VERSION

OPENAPI = "3.1.0"
ABOUT = (
    "What Trainyard has beside the resources of Vertex AI, which Google describes (`/v1/`, docs/vertex.md). Send a "
    "token as `Authorization: Bearer TOKEN`; Account → API tokens makes one. An object that you may not see is "
    "answered as one that is not there: 404. Lists come in pages: send `nextPageToken` as `pageToken`, until there is "
    "none. More than some thousand requests a minute get 429 with `Retry-After`. An answer to GET has an `ETag`; sent "
    "back as "
    "`If-None-Match`, it is answered with 304 while nothing has changed."
)
TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API token. The console's own pages use their session.",
}


class Generator(SchemaGenerator):
    """Walks over the calls that the addresses of the deployment have."""

    def _initialise_endpoints(self) -> None:
        """Nothing: the endpoints are those of `addresses`."""

    def _get_paths_and_endpoints(self) -> list[tuple[str, str, str, Any]]:
        found = []
        for each in endpoints(_patterns(get_resolver())):
            view = self.create_view(each.callback, each.method.upper())
            self._set_schema_to_view(view, Operation(each))
            found.append((each.path, each.path, each.method.upper(), view))
        return found

    def get_schema(self, request: Any = None, public: bool = True) -> Schema:
        paths = self.parse(request, public)
        error = schema_of(ErrorAnswer, self.registry)
        components = self.registry.build({})
        components["responses"] = {
            "Error": {"description": "Why not.", "content": {"application/json": {"schema": error}}}
        }
        components["securitySchemes"] = {"token": TOKEN}
        written = {
            "openapi": OPENAPI,
            "info": {"title": "Trainyard", "version": VERSION, "description": ABOUT},
            "servers": [{"url": "/"}],
            "tags": [{"name": tag} for tag in _tags(paths)],
            "paths": paths,
            "components": components,
        }
        return dict(sanitize_result_object(normalize_result_object(written)))


@cache
def description() -> Schema:
    """The same for everybody, so it is made once in each process."""
    return Generator().get_schema()


@cache
def as_yaml() -> bytes:
    return bytes(OpenApiYamlRenderer().render(description()))


def _tags(paths: Schema) -> list[str]:
    """In the order of their addresses."""
    return list(
        dict.fromkeys(tag for path in paths.values() for call in path.values() for tag in call["tags"])
    )


def _patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern)
        else:
            yield pattern
