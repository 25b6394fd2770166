"""All HTTP addresses. The addresses of WebSockets are in console/consumers/routes.py."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from console.runtime import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("", include("console.api.urls")),
    path("", include("console.views.urls")),
]

handler400 = "console.views.errors.bad_request"
handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.broken"
