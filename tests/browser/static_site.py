"""Our static files and one page, without the product: the server is stood in for by the test."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

POLICY = "default-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:"


def viewer_page(**context):
    known = {"job_id": 1, "replica": "workerpool0-0", "run": ""}
    box = render_to_string("jobs/_log.html", {**known, **context})
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log</title>'
        + "".join(
            f'<link rel="stylesheet" href="/static/{name}">'
            for name in ("css/tokens.css", "css/base.css", "log.css")
        )
        + '<script type="module" src="/static/log.js"></script></head><body><main>'
        + box
        + "</main></body></html>"
    )


@contextmanager
def served(html):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            found = finders.find(path.removeprefix("/static/")) if path.startswith("/static/") else None
            if path == "/":
                self.answer(html.encode(), "text/html; charset=utf-8")
            elif found:
                kind = "text/javascript" if path.endswith((".js", ".mjs")) else guess_type(path)[0]
                self.answer(Path(found).read_bytes(), kind or "application/octet-stream")
            else:
                self.send_error(404)

        def answer(self, body, kind):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
