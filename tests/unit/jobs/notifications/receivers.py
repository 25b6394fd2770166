"""Receivers on loopback: one speaks HTTP and gives set answers, one speaks SMTP. Their threads end with the test."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hook(ThreadingHTTPServer):
    """Gives `answers` (status, headers, body) one after the other, and the last one for ever."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard = []
        self.answers = [(204, {}, b"")]

    @property
    def port(self):
        return self.server_address[1]

    def url(self, host="127.0.0.1", path="/hook/T0KEN-0123456789-abcdef"):
        return f"http://{host}:{self.port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append((self.path, dict(self.headers), body))
        answers = self.server.answers
        status, headers, text = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *args):
        pass


class Mail(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Session)
        self.letters = []
        self.recipient_answer = b"250 ok"

    @property
    def port(self):
        return self.server_address[1]


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 mail.example ready\r\n")
        to = []
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"EHLO":
                self.wfile.write(b"250-mail.example\r\n250 AUTH PLAIN\r\n")
            elif word == b"AUTH":
                self.wfile.write(b"235 welcome\r\n")
            elif word == b"RCPT":
                to.append(line.decode().strip())
                self.wfile.write(self.server.recipient_answer + b"\r\n")
            elif word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                letter = b""
                while not letter.endswith(b"\r\n.\r\n"):
                    letter += self.rfile.readline()
                self.server.letters.append((to, letter))
                self.wfile.write(b"250 taken\r\n")
            elif word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 ok\r\n")


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
