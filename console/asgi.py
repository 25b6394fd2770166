"""The ASGI application: HTTP and WebSockets. console/consumers/ checks who may open a socket."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter
from django.conf import settings

from console.consumers.routes import websocket
from console.runtime.client_limits import limits
from console.runtime.client_limits.client_gate import ClientGate
from console.runtime.requests.asgi_handler import ThreadedHandler

router = ProtocolTypeRouter({"http": ThreadedHandler(), "websocket": websocket})
application = ClientGate(router, limits.current(), settings.SESSION_COOKIE_NAME)
