"""A large file goes on where it stopped, whatever stands between this client and the console says meanwhile."""

from __future__ import annotations

import hashlib
import io
import json
from http.client import HTTPMessage
from types import SimpleNamespace

import pytest

from console.client import configuration, transfers, uploads
from console.client.connection import Answer, Target
from console.client.errors import Offline, Refusal
from console.client.progress import Progress

SIZE = transfers.SMALL + 1000
TO = transfers.Place("lab", "model.pt")
HTML = b"<html>bad gateway</html>"
BUSY = b'{"error": {"message": "Too many uploads at this moment."}}'


def answer(status, body=b"{}", **headers):
    found = HTTPMessage()
    for name, value in headers.items():
        found[name.replace("_", "-")] = value
    return Answer(status, found, body)


class Storage:
    """The console's side of uploads. What is in `broken` is answered first, one for each request of its kind."""

    target, server_version = Target("https://yard.example"), ""

    def __init__(self):
        self.parts, self.begun, self.broken = {}, 0, {"begin": [], "ask": [], "send": []}

    def request(self, method, path, query, headers, body):
        assert method == "POST"
        if self.broken["begin"]:
            raise self.broken["begin"].pop(0)
        self.begun += 1
        self.parts[f"key{self.begun}"] = b""
        return answer(200, X_GUploader_UploadID=f"key{self.begun}")

    def send_once(self, method, path, query, body, headers):
        if self.broken["ask"]:
            return self.broken["ask"].pop(0)
        return self._so_far(query["upload_id"])

    def upload(self, method, path, body, length, headers, query):
        key, place = query["upload_id"], headers["Content-Range"]
        at = int(place.partition(" ")[2].partition("-")[0])
        assert at == len(self.parts[key])
        # What is refused on its way has still brought something.
        cut = self.broken["send"].pop(0) if self.broken["send"] else None
        self.parts[key] += body.read(1000 if cut else length)
        return cut or self._so_far(key)

    def _so_far(self, key):
        if key not in self.parts:
            return answer(404)
        have = len(self.parts[key])
        return (
            answer(200) if have == SIZE else answer(308, **({"Range": f"bytes=0-{have - 1}"} if have else {}))
        )


@pytest.fixture
def storage():
    return Storage()


@pytest.fixture
def send(storage, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINYARD_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(transfers, "FIRST_S", 0.0)
    file = tmp_path / "model.pt"
    file.write_bytes(bytes(range(250)) * (SIZE // 250) + b"x" * (SIZE % 250))
    console = configuration.Console("https://yard.example")
    session = SimpleNamespace(api=storage, console=console, project="nlp")

    def send():
        transfers.send(session, file, TO, Progress(""))
        assert storage.parts[f"key{storage.begun}"] == file.read_bytes()

    return send


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("where", ["ask", "send"])
def test_what_the_console_cannot_take_now_goes_on_where_it_stopped(storage, send, where, status):
    storage.broken["send"] = [answer(502, HTML)]
    storage.broken[where] += [answer(status, HTML)] * 2
    send()
    assert storage.begun == 1


def test_the_next_call_goes_on_after_a_console_that_was_away_for_long(storage, send):
    storage.broken = {"begin": [], "ask": [answer(503, BUSY)] * transfers.TRIES, "send": [answer(503, BUSY)]}
    with pytest.raises(Offline, match="Too many uploads at this moment") as away:
        send()
    assert "it goes on where it stopped" in away.value.cure
    storage.broken["ask"] = []
    send()
    assert storage.begun == 1


def test_what_brings_something_each_time_is_never_given_up(storage, send):
    storage.broken["send"] = [answer(502, HTML)] * (3 * transfers.TRIES)
    send()
    assert storage.begun == 1


def test_what_is_refused_for_good_begins_anew(storage, send):
    storage.broken["send"] = [answer(400, b'{"error": {"message": "It is refused."}}')]
    with pytest.raises(Refusal, match="It is refused"):
        send()
    send()
    assert storage.begun == 2


def test_an_upload_that_the_console_has_forgotten_begins_anew(storage, send):
    storage.broken["ask"] = [answer(404)]
    storage.broken["send"] = [answer(502, HTML)]
    send()
    assert storage.begun == 2


class Artifacts:
    target, server_version = Target("https://yard.example"), ""

    def __init__(self, *answers):
        self.answers, self.came = list(answers), []

    def get(self, path):
        raise Refusal(404, "There is none.")

    def upload(self, method, path, body, length, headers, query):
        self.came.append(body.read())
        return self.answers.pop(0)


@pytest.fixture
def bring(monkeypatch):
    slept = []
    monkeypatch.setattr(uploads.time, "sleep", slept.append)

    def bring(*answers):
        api = Artifacts(*answers)
        session = SimpleNamespace(api=api, project="nlp", target=api.target)
        digest = hashlib.sha256(b"code").hexdigest()
        try:
            assert uploads.upload_artifact(session, io.BytesIO(b"code"), digest, 4, "code.tar.gz") == digest
        finally:
            assert set(api.came) == {b"code"}
        return slept, len(api.came)

    return bring


def test_an_archive_is_sent_again_to_a_console_that_was_busy(bring):
    busy = answer(503, BUSY, Retry_After="5")
    slept, tries = bring(busy, answer(502, HTML), answer(201))
    assert tries == 3 and slept[0] == 5


def test_an_archive_is_not_sent_again_where_that_changes_nothing(bring):
    full = json.dumps({"error": {"message": "The project has no room."}}).encode()
    with pytest.raises(Refusal, match="has no room"):
        bring(answer(429, full))


def test_a_console_that_stays_busy_is_told_in_its_own_words(bring):
    with pytest.raises(Refusal, match="Too many uploads"):
        bring(*[answer(503, BUSY)] * uploads.TRIES)
