"""The web process: uvicorn on a socket that `trainyard up` opened, so that no connection is refused in a restart."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Sequence

import uvicorn
from django.utils.module_loading import import_string

from console import environment
from console.runtime import memory, websocket_protocol
from console.runtime.client_limits import http_protocol, limits
from console.runtime.client_limits.open_connections import report_refusals

# A client sends cursors, acknowledgements and keystrokes. It splits a paste into pieces.
MAX_MESSAGE_BYTES = 256 * 1024
# The event loop does a little between two waits, and after each it waits for a thread that renders a page to let it go
# on. With Python's default of 5 ms, a line for a viewer would wait for several such moments.
SWITCH_INTERVAL_S = 0.0005


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the listening socket, inherited")
    listener = socket.socket(fileno=parser.parse_args(argv).fd)
    memory.keep_small()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    limits.raise_file_limit()
    logging.getLogger("uvicorn.error").addFilter(QuietAboutStrangers())
    server = uvicorn.Server(config())
    server.config.load()
    # They import models, which is possible only after Django was set up with the application.
    import_string("agents.clock_keeper.ClockKeeper")().start()
    import_string("console.runtime.schema_watch.SchemaWatch")().start()
    import_string("console.auth.shell_guard.ShellGuard")().start()
    import_string("console.views.studies.warm_up.compile_templates")()
    memory.forget_start()
    server.run(sockets=[listener])


class QuietAboutStrangers(logging.Filter):
    """Counts warnings of requests that are no HTTP, instead of writing a line for each of a flood of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or "request" not in record.getMessage():
            return True
        report_refusals("requests that cannot be understood", record.getMessage())
        return False


def config() -> uvicorn.Config:
    found = environment.current()
    return uvicorn.Config(
        "console.asgi:application",
        http=http_protocol.Protocol,
        ws=websocket_protocol.Protocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        # Compression would cost memory for each socket and milliseconds for each keystroke.
        ws_per_message_deflate=False,
        # A client that is gone is cut off after 20 s at most. A browser answers pings also from a hidden page, and a
        # slow client gets the bytes that wait before the ping in this time.
        ws_ping_interval=8.0,
        ws_ping_timeout=12.0,
        lifespan="off",
        # The client's address comes from a proxy's headers only if the operator says that there is a proxy.
        proxy_headers=bool(found.url),
        forwarded_allow_ips=[str(network) for network in found.proxies],
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=3,
    )


if __name__ == "__main__":
    main()
