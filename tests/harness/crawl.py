"""Visitors of a running product, who open every address that it has (addresses.py): as a browser, as htmx, as a script.

What each of them got is kept by name, so that a test can look through all of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.harness import addresses
from tests.harness.wait_and_processes import PATIENCE_S

CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
# So many requests at once: the pages are many, and a process of the product answers several.
AT_ONCE = 6
# The server closes an idle connection, maybe just when a question comes. Browsers ask once more then.
ONCE_MORE = Retry(total=1, status=0, allowed_methods={"GET", "HEAD"})
# How long a socket is listened to, after which it has sent what it has.
LISTEN_S = 0.7
# How long a log or a shell may take until it sends anything.
FIRST_S = 20.0


class Visitor:
    """A person with a browser and a script. Without a token: somebody who has not logged in."""

    def __init__(self, url, name="nobody", token=""):
        self.url, self.name, self.token = url, name, token
        self.browser, self.script = requests.Session(), requests.Session()
        for each in (self.browser, self.script):
            each.trust_env = False
            each.mount("http://", HTTPAdapter(max_retries=ONCE_MORE))
        if token:
            self.script.headers["Authorization"] = f"Bearer {token}"

    def log_in(self, password):
        answer = self.send("/login", "/login", username=self.name, password=password, next="")
        assert "/login" not in answer.url, answer.text[:2000]
        return self

    @property
    def session(self):
        """The key of the browser's session."""
        return next(cookie.value for cookie in self.browser.cookies if cookie.name.startswith("session"))

    def send(self, page, address, **fields):
        """Send a form of a page, as a browser does."""
        fields["csrfmiddlewaretoken"] = CSRF.search(self.get(page).text)[1]
        headers = {"Referer": self.url + page, "Origin": self.url}
        return self.browser.post(self.url + address, data=fields, headers=headers, timeout=PATIENCE_S)

    def get(self, path, **headers):
        return self.browser.get(self.url + path, headers=headers, timeout=PATIENCE_S, allow_redirects=False)

    def ask(self, method, path, **options):
        return self.script.request(method, self.url + path, timeout=PATIENCE_S, **options)

    def listen(self, path):
        """The first frames of a socket, or why it was refused."""
        # As our own page, with the session, and otherwise as a script.
        cookies = "; ".join(f"{name}={value}" for name, value in self.browser.cookies.items())
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {"Cookie": cookies}
        frames = []
        try:
            address = self.url.replace("http", "ws", 1) + path
            with connect(
                address, additional_headers=headers, proxy=None, open_timeout=PATIENCE_S, close_timeout=2
            ) as socket:
                socket.send(json.dumps(greeting(path)))
                until = time.monotonic() + FIRST_S
                with contextlib.suppress(TimeoutError):
                    while (begun := begins(path, frames)) or time.monotonic() < until:
                        frames.append(_bytes(socket.recv(timeout=LISTEN_S if begun else FIRST_S)))
        except (OSError, WebSocketException) as refused:
            frames.append(_bytes(str(refused)))
        return b"\n".join(frames)

    def opened(self, values, queries=(), fragments=True):
        """Place → what this visitor was given, for every address. `queries`: further addresses, with their queries.
        `fragments`: each page once more, as htmx asks for it.
        """
        pages = [
            *addresses.pages(values).values(),
            *(each for each in queries if not each.startswith("/api/")),
        ]
        scripts = [*addresses.rest(values), *(each for each in queries if each.startswith("/api/"))]
        as_htmx = {"HX-Request": "true"}
        looks = [
            *((f"page {path}", lambda path=path: _whole(self.get(path))) for path in pages),
            *((f"answer {path}", lambda path=path: _whole(self.ask("GET", path))) for path in scripts),
            *((f"socket {path}", lambda path=path: self.listen(path)) for path in addresses.sockets(values)),
        ]
        if fragments:
            looks += [
                (f"fragment {path}", lambda path=path: _whole(self.get(path, **as_htmx))) for path in pages
            ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            given = list(pool.map(lambda look: look[1](), looks))
        return {f"{place} as {self.name}": content for (place, _), content in zip(looks, given, strict=True)}


def greeting(path):
    """What a page says first over this socket. A log and a shell send nothing before it."""
    if re.fullmatch(r"/ws/jobs/\d+/log", path):
        return {"begin": True}
    if "/log/" in path:
        return {"from": 0}
    if path.startswith("/ws/shell"):
        return {"resize": [80, 24], "client": secrets.token_hex(8), "from": None}
    return {}


def begins(path, frames):
    """Whether the first of what this socket is for has come. Before that it may be silent on a busy machine."""
    first = b""
    if re.fullmatch(r"/ws/jobs/\d+/log", path):
        first = b'"rows"'
    elif path.startswith("/ws/shell"):
        first = b'"ready"'
    return not first or any(first in frame for frame in frames)


def _bytes(frame):
    return frame if isinstance(frame, bytes) else frame.encode()


def _whole(answer):
    """Status, headers and body: a secret may be in each of them. The visitor's own cookie is none."""
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "set-cookie"}
    return f"{answer.status_code} {headers}\n".encode() + answer.content
