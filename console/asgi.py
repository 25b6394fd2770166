"""HTTP and WebSockets. Who may open which socket is decided in console/consumers/."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter

from console.consumers.routes import websocket
from console.runtime.asgi_handler import ThreadedHandler

application = ProtocolTypeRouter({"http": ThreadedHandler(), "websocket": websocket})
