"""A git server over https with basic authentication, as a lab has one: git's http-backend behind Python's server."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import os
import ssl
import subprocess
import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PASSWORD = "canary-of-the-git-server"  # noqa: S105
BACKEND = os.path.join(
    subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip(),
    "git-http-backend",
)


def git(*arguments, directory):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments],
        cwd=directory, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def certificate(place: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "git server of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = place / "server.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


class GitServer:
    """Serves the repositories of a directory. `asked` has the user names and passwords that came."""

    def __init__(self, place: Path, password: str = "") -> None:
        self.place, self.password = place, password
        self.asked: list[str] = []
        self.pem = certificate(place)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def do_POST(self):
                server.answer(self)

            def log_message(self, *words):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request):
        given = request.headers.get("Authorization", "")
        if given:
            self.asked.append(base64.b64decode(given.partition(" ")[2]).decode())
        if self.password and not any(each.endswith(":" + self.password) for each in self.asked[-1:] if given):
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        path, _, query = request.path.partition("?")
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.place), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": request.command,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""), "HOME": str(self.place),
        }  # fmt: skip
        done = subprocess.run([BACKEND], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n") if b": " in line)
        request.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
