"""The files of a replica, as pages and by REST: listed, downloaded, and refused with a reason."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from agents.infra import shared_answers
from agents.ssh import files, keys
from agents.ssh.dial import DialError, Unreachable
from agents.ssh.files import Entry, FileRefused, Listing
from jobs.outputs import work_directories
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


def test_who_gets_no_place_is_told_at_once(browser, cast, address, asked):
    share = str(cast.bob.pk)
    with ExitStack() as held:
        for _ in range(work_directories.dials.most // 2):
            held.enter_context(work_directories.dials.place(share))
        answer = browser("bob").get(address)
        assert answer.status_code == 503 and "Try again in a moment" in answer.content.decode()
        assert asked == [] and work_directories.transfers.total() == 0
        assert browser("alice").get(address).status_code == 200, "another person has a place"
    assert browser("bob").get(address).status_code == 200 and work_directories.dials.total() == 0


def test_a_file_has_a_place_until_its_end_or_until_its_client_has_gone(job, asked):
    def opened(share):
        return work_directories.open_file(job, job.replicas.get(), "x", share)

    # No byte of these is taken.
    taken = [opened("bob") for _ in range(work_directories.transfers.most // 2)]
    with pytest.raises(work_directories.Busy):
        opened("bob")
    assert b"".join(opened("alice")), "another person has a place"
    taken[0].close()
    last = opened("bob")
    assert next(last) and work_directories.transfers.total() == len(taken)
    assert b"".join(last) and work_directories.transfers.total() == len(taken) - 1
    for each in taken:
        each.close()
        each.close()
    assert work_directories.transfers.total() == work_directories.dials.total() == 0


def test_the_download_of_a_page_gives_its_place_back(browser, cast, address, asked):
    with ExitStack() as held:
        for _ in range(work_directories.transfers.most // 2):
            held.enter_context(work_directories.transfers.place(str(cast.bob.pk)))
        assert browser("bob").get(f"{address}/download?path=x").status_code == 503
    answer = browser("bob").get(f"{address}/download?path=x")
    assert work_directories.transfers.total() == 1
    assert b"".join(answer.streaming_content) and work_directories.transfers.total() == 0


def test_a_host_that_does_not_answer_is_asked_once_in_a_while(browser, address, asked, monkeypatch):
    dialled = []

    def fail(target, *given):
        dialled.append(target.name)
        raise Unreachable("gpu-7 does not answer")

    monkeypatch.setattr(files, "list_files", fail)
    for _ in range(3):
        assert "gpu-7 does not answer" in browser("bob").get(address).content.decode()
    assert len(dialled) == 1
    passed, monotonic = 6.0, time.monotonic
    monkeypatch.setattr(shared_answers.time, "monotonic", lambda: monotonic() + passed)
    browser("bob").get(address)
    assert len(dialled) == 2


def test_a_host_that_refuses_a_file_is_asked_again(browser, address, asked, monkeypatch):
    dialled = []

    def refuse(target, *given):
        dialled.append(target.name)
        raise FileRefused("There is no such file.")

    monkeypatch.setattr(files, "open_file", refuse)
    assert [browser("bob").get(f"{address}/download?path=x").status_code for _ in range(2)] == [409, 409]
    assert len(dialled) == 2 and work_directories.transfers.total() == 0


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
