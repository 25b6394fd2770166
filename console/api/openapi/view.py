"""`GET /api/v1/openapi.json`, `GET /api/v1/openapi.yaml`: the description of the API, for programs."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import described
from console.api.views import TrainyardView

# By name: the package that writes it costs time and memory, which a process that nobody asks does without.
GENERATOR = "console.api.openapi.generator"


def description() -> dict[str, Any]:
    """The whole description, made once in each process."""
    return dict(import_string(f"{GENERATOR}.description")())


class JsonView(TrainyardView):
    @described("Describe this API, as JSON", dict[str, Any])
    def get(self, request: Request) -> Response:
        return Response(description())


class YamlView(TrainyardView):
    @described("Describe this API, as YAML", files=("application/yaml",))
    def get(self, request: Request) -> HttpResponseBase:
        return HttpResponse(import_string(f"{GENERATOR}.as_yaml")(), content_type="application/yaml")
