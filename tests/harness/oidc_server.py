"""A real OpenID Connect server (npm `oidc-provider`), and a person in front of its forms."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import requests

ROOT = Path(__file__).resolve().parents[2]
CLIENT, SECRET = "trainyard", "a secret of both"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OidcServer:
    """`people`: the claims of each name. A name that is not there has an account without groups."""

    def __init__(self, back, people=(), port=0):
        self.port = port or free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        client = {"client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [back]}
        given = json.dumps({"clients": [client], "people": dict(people)})
        node = shutil.which("node") or str(ROOT / ".venv" / "bin" / "node")
        self._process = subprocess.Popen(
            [node, "tests/harness/oidc_server.mjs", str(self.port), given],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if not any(line.startswith("ready ") for line in self._process.stdout):
            self.close()
            raise RuntimeError("the OIDC server did not start: is oidc-provider installed (make install)?")

    def close(self):
        self._process.kill()
        self._process.wait(10)
        self._process.stdout.close()


@contextmanager
def oidc_server(back, people=(), port=0):
    server = OidcServer(back, people, port)
    try:
        yield server
    finally:
        server.close()


def sign_in(address, name, browser=None):
    """Go through the forms of the server as this person. Returns the address to which the browser is sent back.

    `browser`: one that was here before keeps its login there.
    """
    browser = browser or requests.Session()
    answer = browser.get(address, allow_redirects=False, timeout=20)
    for _ in range(12):
        if answer.status_code in (302, 303):
            address = urljoin(answer.url, answer.headers["Location"])
            if "/interaction/" not in address and "/auth" not in address:
                return address
            answer = browser.get(address, allow_redirects=False, timeout=20)
            continue
        form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
        assert form, answer.text[:2000]
        prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)[1]
        typed = {"prompt": prompt, **({"login": name, "password": "any"} if prompt == "login" else {})}
        address = urljoin(answer.url, unescape(form[1]))
        answer = browser.post(address, typed, allow_redirects=False, timeout=20)
    raise AssertionError("the server asks and asks")
