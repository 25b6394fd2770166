"""What people are told when the console does not answer, refuses, or is another one than they think (Python 3.9)."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from console.client import VERSION
from tests.harness.command_line import CommandLine

TOKEN = "tyd_canary-of-this-test"
ERROR = {"error": {"code": 0, "message": "It is refused."}}


class Console(BaseHTTPRequestHandler):
    """Answers each request with the next of `server.answers`, and keeps what came."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.sent.append((self.command, self.path, sent))
        answers = self.server.answers
        status, headers, document = answers.pop(0) if len(answers) > 1 else answers[0]
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET

    def log_message(self, *given):
        pass


@pytest.fixture
def console():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Console)
    server.seen, server.sent, server.answers = [], [], [(200, {}, {"jobs": []})]
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return CommandLine(tmp_path_factory.mktemp("client"))


@pytest.fixture
def ask(command, console):
    def run(*words, url="", **environment):
        made = {"TRAINYARD_CONSOLE": url or console.url, "TRAINYARD_TOKEN": TOKEN, **environment}
        done = command.run(*(words or ("jobs",)), check=False, **made)
        assert TOKEN not in done.stdout + done.stderr and "Traceback" not in done.stderr
        return done

    return run


def refused(done, *texts, code=1):
    assert done.returncode == code, done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr


def test_the_token_goes_into_a_header_and_the_address_is_the_consoles(ask, console):
    assert ask().returncode == 0
    [(path, token)] = console.seen
    assert path.startswith("/api/v1/jobs?") and token == f"Bearer {TOKEN}"


def test_a_console_below_a_path(ask, console):
    ask(url=console.url + "/yard/")
    assert console.seen[0][0].startswith("/yard/api/v1/jobs?")


@pytest.mark.parametrize(
    ("status", "texts"),
    [
        (400, ["It is refused."]),
        (401, ["It is refused.", "trainyard login"]),
        (403, ["It is refused."]),
        (404, ["It is refused.", "--project", "older than this client"]),
        (409, ["It is refused."]),
        (429, ["It is refused.", "Wait a little"]),
        (501, ["It is refused.", "older than this client"]),
        (503, ["It is refused.", "Wait a little"]),
    ],
)
def test_each_refusal_is_told_with_what_helps(ask, console, status, texts):
    console.answers = [(status, {}, ERROR)]
    refused(ask(), *texts)


def test_the_field_that_is_wrong_is_named(ask, console):
    wrong = {"field": "sort", "description": "must be a column"}
    error = {"message": "Refused.", "details": [{"fieldViolations": [wrong]}]}
    console.answers = [(400, {}, {"error": error})]
    refused(ask(), "sort: must be a column")


def test_what_is_put_off_is_asked_again_when_it_was_told(ask, console):
    console.answers = [(429, {"Retry-After": "1"}, ERROR), (200, {}, {"jobs": []})]
    assert ask().returncode == 0 and len(console.seen) == 2
    console.answers = [(429, {"Retry-After": "3600"}, ERROR)]
    refused(ask(), "Try again in 3600 s.")
    assert len(console.seen) == 3


def test_a_console_of_another_version_is_told(ask, console):
    console.answers = [(404, {"Trainyard-Version": "0.0.9"}, ERROR)]
    refused(ask(), f"This client is version {VERSION}, the console 0.0.9")
    console.answers = [(404, {"Trainyard-Version": VERSION}, ERROR)]
    assert "version" not in ask().stderr


def test_a_redirect_is_not_followed_with_the_token(ask, console):
    console.answers = [(302, {"Location": "https://elsewhere.example/"}, b"")]
    refused(ask(), "leads to another address: https://elsewhere.example/")
    assert len(console.seen) == 1


def test_what_is_no_console_is_told(ask, console):
    console.answers = [(200, {}, b"<html>")]
    refused(ask(), "no console of Trainyard")
    console.answers = [(502, {}, b"<html>bad gateway</html>")]
    refused(ask(), "answers 502, and not as a console does")


def test_text_of_the_console_does_nothing_to_the_terminal(ask, console):
    job = {"id": "1", "displayName": "\x1b[2Jx\x07", "state": "RUNNING", "owner": "\u202eb", "gpus": 0}
    console.answers = [(200, {}, {"jobs": [{**job, "createTime": "2026-11-23T15:00:00Z"}]})]
    done = ask()
    assert "^[[2Jx^G" in done.stdout and "<U+202E>b" in done.stdout and "\x1b" not in done.stdout
    console.answers = [(400, {}, {"error": {"message": "\x1b]0;x\x07"}})]
    assert "\x1b" not in ask().stderr


def test_offline_is_told_with_what_helps(ask):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused(
            ask(url=f"http://127.0.0.1:{free.getsockname()[1]}"), "Nothing listens at", "is the port right"
        )
    refused(ask(url="http://no-such-name.invalid"), "is not known here", "VPN")
    refused(ask(url="no address"), "There is no console 'no address'", code=2)
    refused(ask(url="ftp://x"), "is no address of a console", code=2)


def test_a_proxy_is_asked_unless_the_host_is_left_out(ask):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert ask(http_proxy=proxy).returncode == 1
        assert ask(http_proxy=proxy, no_proxy="127.0.0.1").returncode == 0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority of our own, and a certificate that it has signed for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *made, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ours", "-days", "2")
    openssl("req", *made, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=console")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2"]
    openssl("x509", "-req", "-in", "request.pem", *signed, "-out", "certificate.pem")
    return folder


def test_an_authority_of_our_own_is_trusted_where_it_is_named(ask, console, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "certificate.pem", certificates / "key.pem")
    console.socket = context.wrap_socket(console.socket, server_side=True)
    secure, ca = console.url.replace("http", "https"), str(certificates / "ca.pem")
    refused(ask(url=secure), "is not trusted", "--ca-file FILE")
    assert ask("jobs", "--ca-file", ca, url=secure).returncode == 0
    for name in ("TRAINYARD_CA_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        assert ask(url=secure, **{name: ca}).returncode == 0, name
    refused(ask("jobs", "--ca-file", str(certificates / "key.pem"), url=secure), "cannot be read")
    refused(ask(url=secure.replace("127.0.0.1", "localhost"), SSL_CERT_FILE=ca), "is not trusted")


def test_https_where_there_is_none(ask, console):
    refused(ask(url=console.url.replace("http", "https")), "speaks no TLS", "http://")
