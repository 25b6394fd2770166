"""Every address that the web process answers."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from console import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
]
