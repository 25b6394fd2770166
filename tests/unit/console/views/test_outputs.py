"""The files that a job wrote, as pages and by REST: listed, previewed, downloaded, deleted, and nobody else's."""

from __future__ import annotations

import io
import zipfile

import pytest
from django.utils import timezone

from agents.models import Host
from jobs.models import AuditEntry, HostOutputs, OutputFile, StoredObject
from jobs.outputs import browsing
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, a_job, an_output, one_line

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
def job(project, cast):
    job = a_job(project, cast.bob, host=a_host())
    an_output(job, "bucket-1/run/model.bin", b"0123456789")
    an_output(job, "bucket-1/run/logs/a.txt", b"line 1\nline 2 <script>\n")
    an_output(job, "bucket-1/run/logs/b.png", PNG)
    an_output(job, "bucket-1/run/logs/c.svg", b"<svg onload=alert(1)>")
    an_output(job, "bucket-1/other/of-another-job", b"x")
    HostOutputs.objects.update(addresses=[["bucket-1", "run"]])
    return job


@pytest.fixture
def address(job):
    return f"/jobs/{job.pk}/outputs/"


@pytest.fixture
def api(job, cast, client):
    def api(method="get", path="", who="bob", what="files", **headers):
        token = token_of(getattr(cast, who))
        headers = {"authorization": f"Bearer {token}", **headers}
        url = f"/api/v1/jobs/{job.pk}/outputs" + (f"/{what}?path={path}" if what else "")
        return getattr(client, method)(url, headers=headers)

    return api


def on_host(job, path, size=5):
    now = timezone.now()
    OutputFile.objects.create(
        outputs=HostOutputs.objects.get(job=job),
        path=path,
        size=size,
        mtime_ns=10**18,
        ctime_ns=0,
        inode=1,
        seen_at=now,
    )


def test_the_tab_shows_directories_files_and_what_is_on_hosts_only(browser, job, address):
    on_host(job, "bucket-1/run/step-7.pt", 2048)
    html = one_line(browser("bob").get(f"{address}?path=bucket-1/run").content.decode())
    assert f'href="{address}?path=bucket-1%2Frun%2Flogs"' in html and "model.bin" in html
    assert f"on host {Host.objects.get().name}, not stored yet" in html and "2.0" in html
    top = browser("bob").get(address).content.decode()
    assert "bucket-1/" in top and "All is stored" not in top
    assert 'aria-current="page">Files' in top


def test_nothing_outside_of_the_jobs_addresses_is_reached(browser, job, address, api):
    for path in (
        "bucket-1/other",
        "bucket-1/other/of-another-job",
        "bucket-1/run/../other",
        "bucket-2",
        "bucket-1/runs",
    ):
        assert browser("bob").get(f"{address}?path={path}").status_code in (400, 404), path
        assert api(path=path).status_code in (400, 404), path
        assert api(path=path, what="content").status_code in (400, 404), path
        assert api("delete", path=path).status_code in (400, 404), path
    assert StoredObject.objects.count() == 5


def test_texts_and_images_are_previewed_and_nothing_that_runs(browser, job, address):
    html = browser("bob").get(f"{address}file?path=bucket-1/run/logs/a.txt").content.decode()
    assert "line 2 &lt;script&gt;" in html and "<script>\n" not in html
    image = f"{address}image?path=bucket-1/run/logs/b.png"
    assert "image?path=" in browser("bob").get(f"{address}file?path=bucket-1/run/logs/b.png").content.decode()
    answer = browser("bob").get(image)
    assert answer.content == PNG and answer["Content-Type"] == "image/png"
    assert answer["X-Content-Type-Options"] == "nosniff" and "sandbox" in answer["Content-Security-Policy"]
    svg = browser("bob").get(f"{address}file?path=bucket-1/run/logs/c.svg").content.decode()
    assert "&lt;svg onload" in svg and "image?path" not in svg
    assert browser("bob").get(f"{address}image?path=bucket-1/run/logs/c.svg").status_code == 404


def test_a_file_is_downloaded_by_ranges_and_a_directory_as_an_archive(api):
    answer = api(path="bucket-1/run/model.bin", what="content")
    assert b"".join(answer.streaming_content) == b"0123456789"
    assert (
        answer["Content-Type"] == "application/octet-stream" and "attachment" in answer["Content-Disposition"]
    )
    part = api(path="bucket-1/run/model.bin", what="content", range="bytes=2-4")
    assert (part.status_code, b"".join(part.streaming_content)) == (206, b"234")
    assert part["Content-Range"] == "bytes 2-4/10"
    assert api(path="bucket-1/run/model.bin", what="content", range="bytes=10-").status_code == 416
    packed = b"".join(api(path="bucket-1/run", what="content").streaming_content)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert sorted(archive.namelist()) == ["logs/a.txt", "logs/b.png", "logs/c.svg", "model.bin"]
        assert archive.read("logs/b.png") == PNG


def test_a_list_for_scripts_says_what_is_where_and_has_pages(job, api, monkeypatch):
    on_host(job, "bucket-1/run/step-7.pt")
    found = api(path="bucket-1/run").json()["files"]
    assert [(each["name"], each["kind"], each.get("onHost", "")) for each in found] == [
        ("logs", "directory", ""),
        ("model.bin", "file", ""),
        ("step-7.pt", "file", Host.objects.get().name),
    ]
    monkeypatch.setattr(browsing, "PAGE", 2)
    first = api(path="bucket-1/run/logs").json()
    assert [each["name"] for each in first["files"]] == ["a.txt", "b.png"]
    more = api(path=f"bucket-1/run/logs&pageToken={first['nextPageToken']}").json()
    assert [each["name"] for each in more["files"]] == ["c.svg"] and "nextPageToken" not in more
    state = api(what="").json()
    assert state["addresses"] == ["gs://bucket-1/run"] and state["hosts"][0]["files"] == 6


def test_who_may_delete_the_job_deletes_its_files(browser, job, address, api):
    assert api("delete", path="bucket-1/run/logs", who="vera").status_code == 403
    assert api("delete", path="bucket-1/run/logs/a.txt").json() == {"deletedFiles": 1}
    page = browser("bob").get(f"{address}?path=bucket-1/run/logs").content.decode()
    assert "a.txt" not in page and "b.png" in page and "Delete this from the storage?" in page
    browser("bob").post(f"{address}delete", {"path": "bucket-1/run/logs"})
    assert {row.name for row in StoredObject.objects.all()} == {"run/model.bin", "other/of-another-job"}
    assert AuditEntry.objects.filter(what="outputs.delete").count() == 2
