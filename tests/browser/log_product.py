"""The product as the log viewer sees it: the socket, and ranges and lines by HTTP. The test is the server."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

ROWS = ".log-body .row"


def wait_for_text(page, text):
    page.locator(ROWS).filter(has_text=text).last.wait_for()


def numbered(first, last):
    return b"".join(b"step %07d loss 0.1234 and some more words\n" % n for n in range(first, last))


class Product:
    """The log of one replica as the product serves it: the socket, and ranges by HTTP."""

    def __init__(self, page, data):
        self.page = page
        self.runs = {"r0": bytearray(data)}
        self.run = "r0"
        self.sent = 0
        self.socket = None
        self.messages = []
        self.paused = self.begun = False
        self.status = {"complete": False, "phase": "running", "matches": None}
        page.route_web_socket("**/ws/**", self.connected)
        # [offset, second since 1970]
        self.times = []
        page.route("**/api/v1/jobs/1/**", self.bytes)
        page.route("**/log/lines?**", self.lines)
        page.route("**/api/v1/jobs/1", lambda route: route.fulfill(json={"replicas": []}))

    def connected(self, socket):
        self.socket = socket
        socket.on_message(self.heard)

    def heard(self, text):
        message = json.loads(text)
        self.messages.append(message)
        self.paused = message.get("pause", self.paused)
        if message.keys() & {"from", "tail"}:
            size = len(self.runs[self.run])
            self.sent = message.get("from", max(0, size - message.get("tail", 0)))
            self.head(at=self.sent, jump=True, id=message["id"])
            self.begun = True
        if self.begun:
            self.pour()

    def head(self, **more):
        size = len(self.runs[self.run])
        known = {"run": self.run, "size": size, "stored": size, "newest_run": self.run, **self.status}
        self.socket.send(json.dumps({**known, **more}))

    def pour(self):
        data = self.runs[self.run]
        if not self.paused:
            while self.sent < len(data):
                piece = bytes(data[self.sent : self.sent + 65536])
                self.sent += len(piece)
                self.socket.send(piece)

    def print(self, data):
        self.runs[self.run] += data
        self.head()
        self.pour()

    def bytes(self, route):
        asked = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        data = self.runs[asked["run"]]
        start = int(asked.get("from", 0))
        end = min(int(asked.get("to", len(data))), start + int(asked.get("limit", 1 << 40)), len(data))
        told = {"Trainyard-Log-From": str(start), "Trainyard-Log-To": str(end)}
        route.fulfill(body=bytes(data[start:end]), headers=told, content_type="text/plain")

    def lines(self, route):
        asked = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        run = asked.get("run", self.run)
        data = self.runs[run]
        answer = {"run": run, "stored": len(data)}
        if "line" in asked:
            feeds = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
            line = min(int(asked["line"]), len(feeds) - 1)
            answer |= {"line": line, "offset": feeds[line - 1]}
        else:
            start, end = int(asked["from"]), int(asked.get("to", 0))
            answer |= {"line": data.count(b"\n", 0, start) + 1, "offset": start}
            before = [mark for mark in self.times if mark[0] <= start][-1:]
            answer["times"] = before + [mark for mark in self.times if start < mark[0] < end]
        route.fulfill(json=answer)
