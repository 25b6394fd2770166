"""The files of a replica, as pages and by REST: listed, downloaded, and refused with a reason."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.ssh import files, keys
from agents.ssh.dial import DialError
from agents.ssh.files import Entry, FileRefused, Listing
from jobs.outputs import work_directories as remote_files
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, a_job, one_line

WHEN = datetime(2026, 11, 23, 5, 0, tzinfo=UTC)
LISTING = Listing(
    (
        Entry("flame.svg", "file", 2048, WHEN),
        Entry("out", "directory", 4096, WHEN),
        Entry("<b>evil</b>&x", "file", 1, None),
        Entry("away", "link", 7, WHEN),
    ),
    3,
)


class RemoteFile:
    def __init__(self, data=b"<svg onload=alert(1)>"):
        self.data, self.size, self.closed = data, len(data), False

    def parts(self):
        yield self.data[:5]
        yield self.data[5:]

    def close(self):
        self.closed = True


@pytest.fixture
def asked(monkeypatch):
    """What the host is asked for; it has LISTING and a file."""
    asked = []
    monkeypatch.setattr(keys, "private_key", lambda: None)
    monkeypatch.setattr(files, "list_files", lambda target, key, request: asked.append(request) or LISTING)
    monkeypatch.setattr(
        files, "open_file", lambda target, key, request: asked.append(request) or RemoteFile()
    )
    return asked


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host())


@pytest.fixture
def address(job):
    return f"/jobs/{job.pk}/files/workerpool0-0"


def test_a_directory_is_listed_with_links(browser, job, address, asked):
    html = one_line(browser("bob").get(f"{address}?path=/run/deep/").content.decode())
    assert asked[0]["path"] == "run/deep" and asked[0]["run"] == job.runs.get().pk
    assert f'href="{address}/download?path=run%2Fdeep%2Fflame.svg"' in html and "2.0" in html
    assert f'href="{address}?path=run%2Fdeep%2Fout"' in html and f'href="{address}?path=run"' in html
    assert "&lt;b&gt;evil&lt;/b&gt;&amp;x" in html and "<b>evil" not in html
    assert "link, not followed" in html and "3 more entries" in html


def test_a_file_is_a_download_and_no_page(browser, address, asked):
    answer = browser("bob").get(f"{address}/download?path=out/flame%20é.svg")
    assert b"".join(answer.streaming_content) == b"<svg onload=alert(1)>"
    assert (
        answer["Content-Type"] == "application/octet-stream" and answer["X-Content-Type-Options"] == "nosniff"
    )
    assert answer["Content-Disposition"] == "attachment; filename*=UTF-8''flame%20%C3%A9.svg"
    assert answer["Content-Length"] == "21" and asked[0]["path"] == "out/flame é.svg"


def test_a_refusal_is_shown_and_the_page_stays(browser, address, monkeypatch, asked):
    def refuse(*given):
        raise FileRefused("It is a link, or lies behind one. Links are not followed.")

    monkeypatch.setattr(files, "open_file", refuse)
    answer = browser("bob").get(f"{address}/download?path=away")
    assert answer.status_code == 409 and "Links are not followed" in answer.content.decode()


def test_only_so_many_are_fetched_at_once(browser, address, monkeypatch, asked):
    monkeypatch.setattr(remote_files, "WAIT_S", 0.01)
    for _ in range(remote_files.MOST_AT_ONCE):
        remote_files._places.acquire()
    try:
        answer = browser("bob").get(address)
    finally:
        for _ in range(remote_files.MOST_AT_ONCE):
            remote_files._places.release()
    assert answer.status_code == 503 and "Try again in a moment" in answer.content.decode() and asked == []
    assert browser("bob").get(address).status_code == 200


def test_scripts_list_and_fetch_too(client, cast, job, asked, monkeypatch):
    headers = {"authorization": f"Bearer {token_of(cast.bob)}"}
    address = f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/files"
    told = client.get(f"{address}?path=run", headers=headers).json()
    entry = {"name": "flame.svg", "kind": "file", "size": "2048", "updateTime": "2026-11-23T05:00:00.000000Z"}
    assert told["path"] == "run" and told["files"][0] == entry and told["more"] == 3
    answer = client.get(f"{address}/content?path=flame.svg", headers=headers)
    assert b"".join(answer.streaming_content) == b"<svg onload=alert(1)>"

    def fail(*given):
        raise DialError("gpu-7 does not answer")

    monkeypatch.setattr(files, "list_files", fail)
    answer = client.get(address, headers=headers)
    assert answer.status_code == 400 and answer.json()["error"]["message"] == "gpu-7 does not answer"


def test_a_job_without_shells_shows_no_files(browser, project, cast, asked):
    job = a_job(project, cast.bob, host=a_host())
    job.spec = {**job.spec, "enableWebAccess": False}
    job.save(update_fields=["spec"])
    answer = browser("bob").get(f"/jobs/{job.pk}/files/workerpool0-0")
    assert "submitted without enableWebAccess" in answer.content.decode() and asked == []
