"""The static files and one page, without the product: the test stands in for the server."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

POLICY = "default-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; style-src 'self'"


def page_of(title, styles, script, content):
    links = "".join(
        f'<link rel="stylesheet" href="/static/{name}">'
        for name in ("css/tokens.css", "css/base.css", *styles)
    )
    head = f'<meta charset="utf-8"><title>{title}</title>{links}<script type="module" src="/static/{script}"></script>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{content}</main></body></html>'


def viewer_page():
    job = {"replica_count": 2, "restarted": True}
    box = render_to_string("jobs/_log.html", {"job_id": 1, "job": job, "replica": "workerpool0-0", "run": ""})
    return page_of("Log", ["log.css"], "log.js", box)


def shell_page(may_type=True, runs=(("r0", "workerpool0-0"), ("r1", "workerpool1-0"))):
    """The real template without the frame of the site, which needs a user."""
    shown = {
        "run_id": "r0",
        "keep_minutes": 30,
        "recording_days": 30,
        "replica": "workerpool0-0",
        "job": {"id": 1, "display_name": "train"},
        "may_type": may_type,
        "runs": runs,
    }
    html = render_to_string("shells/shell.html", shown)
    box = html[html.index('<div class="shell"') : html.index("</main>")]
    return page_of(
        "Shell",
        ["npm/xterm/css/xterm.css", "css/components.css", "css/pages.css", "css/shell.css"],
        "shell/shell.js",
        box,
    )


def metrics_page(panel):
    box = render_to_string("jobs/_charts.html", {"metrics": panel}) + render_to_string("jobs/_points.html")
    script = '<script src="/static/npm/uplot/uPlot.iife.min.js"></script>'
    styles = ["css/components.css", "css/pages.css", "npm/uplot/uPlot.min.css"]
    return page_of("Metrics", styles, "charts/charts.js", script + box)


@contextmanager
def served(html, inline_styles=False):
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
            self.send_header("Content-Security-Policy", POLICY + " 'unsafe-inline'" * inline_styles)
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
