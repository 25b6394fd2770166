"""The ASGI application: HTTP and WebSockets. console/consumers/ checks who may open a socket."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter

from console.consumers.routes import websocket
from console.runtime.asgi_handler import ThreadedHandler

application = ProtocolTypeRouter({"http": ThreadedHandler(), "websocket": websocket})
