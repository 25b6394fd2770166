"""The web process serves the static files."""

from __future__ import annotations

import pytest

SCRIPTS = [
    "npm/htmx/htmx.min.js",
    "npm/idiomorph/idiomorph.esm.js",
    "npm/xterm/lib/xterm.js",
    "npm/xterm/css/xterm.css",
    "npm/xterm-fit/lib/addon-fit.js",
]


@pytest.mark.parametrize("path", SCRIPTS)
async def test_a_browser_package_is_served_over_asgi_without_a_complaint(async_client, settings, path):
    """Warnings are errors in tests, and a streamed file would warn under ASGI. All files are found at the start."""
    settings.WHITENOISE_AUTOREFRESH = False
    answer = await async_client.get(f"/static/{path}")
    assert answer.status_code == 200
    assert len(answer.content) == int(answer.headers["Content-Length"]) > 1000
    again = await async_client.get(
        f"/static/{path}", headers={"If-Modified-Since": answer.headers["Last-Modified"]}
    )
    assert again.status_code == 304
