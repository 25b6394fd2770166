"""`GET /api/v1/openapi.json`, `GET /api/v1/openapi.yaml`: the description of the API, for programs."""

from __future__ import annotations

from threading import Lock
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import described
from console.api.views import TrainyardView

# By name: the package that writes it costs time and memory, which a process that nobody asks does without.
GENERATOR = "console.api.openapi.generator"
_making = Lock()


def description() -> dict[str, Any]:
    """The whole description, made once in each process."""
    return dict(_made("description"))


def _made(what: str) -> Any:
    """By one thread: the package changes its own classes while it works for the first time."""
    with _making:
        return import_string(f"{GENERATOR}.{what}")()


class JsonView(TrainyardView):
    @described("Describe this API, as JSON", dict[str, Any])
    def get(self, request: Request) -> Response:
        return Response(description())


class YamlView(TrainyardView):
    @described("Describe this API, as YAML", files=("application/yaml",))
    def get(self, request: Request) -> HttpResponseBase:
        return HttpResponse(_made("as_yaml"), content_type="application/yaml")
