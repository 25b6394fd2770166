"""HTTP and WebSockets. Who may open which socket is decided in console/consumers/."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
pages = get_asgi_application()

from channels.routing import ProtocolTypeRouter

from console.consumers.routes import websocket

application = ProtocolTypeRouter({"http": pages, "websocket": websocket})
