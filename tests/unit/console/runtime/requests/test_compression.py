"""Pages and answers of REST are compressed; logs, sockets and what is packed already are not."""

from __future__ import annotations

import gzip
import json

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from console.runtime.requests.compression import Compression

PAGE = "<p>a page, and again a page</p>" * 200


@pytest.fixture
def answered(rf):
    def answer(response, accepts="gzip, deflate, br", method="get"):
        request = getattr(rf, method)("/", headers={"Accept-Encoding": accepts} if accepts else {})
        return Compression(lambda _: response)(request)

    return answer


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", "text/csv; charset=utf-8"])
def test_pages_are_compressed(answered, kind):
    answer = answered(HttpResponse(PAGE, content_type=kind))
    assert gzip.decompress(answer.content).decode() == PAGE
    assert answer.headers["Content-Encoding"] == "gzip" and answer.headers["Vary"] == "Accept-Encoding"
    assert int(answer.headers["Content-Length"]) == len(answer.content) < len(PAGE) / 10


def test_downloads_of_logs_are_not(answered):
    """They are of any size, and a range of them counts their own bytes."""
    answer = answered(StreamingHttpResponse([b"line\n" * 1000], content_type="text/plain; charset=utf-8"))
    assert "Content-Encoding" not in answer.headers and "Vary" not in answer.headers
    assert b"".join(answer.streaming_content) == b"line\n" * 1000


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse("short"),
        HttpResponse(b"\x89PNG" * 1000, content_type="image/png"),
        HttpResponse(PAGE, headers={"Content-Encoding": "br"}),
        HttpResponse(PAGE, content_type=""),
    ],
    ids=["short", "an image", "packed", "unknown"],
)
def test_what_would_gain_nothing_is_left_alone(answered, response):
    before = response.content, response.headers.get("Content-Encoding")
    answer = answered(response)
    assert (answer.content, answer.headers.get("Content-Encoding")) == before


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP;q=0.2", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, br", False),
        ("gzipped", False),
    ],
)
def test_only_a_browser_that_accepts_it_gets_it(answered, accepts, packed):
    answer = answered(HttpResponse(PAGE), accepts)
    assert (answer.headers.get("Content-Encoding") == "gzip") is packed
    assert answer.headers["Vary"] == "Accept-Encoding"


def test_a_table_that_is_read_while_it_is_sent_is_compressed_part_by_part(answered):
    asked = []

    def parts():
        for number in range(200):
            asked.append(number)
            yield json.dumps([hash((number, column)) for column in range(200)]).encode()

    answer = answered(StreamingHttpResponse(parts(), content_type="text/csv"))
    sent = iter(answer.streaming_content)
    first = next(sent) + next(sent)
    assert len(asked) < 10, "the first rows wait for no others"
    whole = gzip.decompress(first + b"".join(sent))
    assert len(asked) == 200 and whole.count(b"[") == 200


def test_the_length_of_a_page_tells_nothing_of_its_secret(answered):
    """BREACH guesses a secret by the length of a page that also shows the guess: the same page has many lengths."""
    pages = [answered(HttpResponse(PAGE)) for _ in range(50)]
    assert len({len(page.content) for page in pages}) > 20
    assert {gzip.decompress(page.content).decode() for page in pages} == {PAGE}


def test_the_list_of_jobs_is_compressed_as_it_goes_out(db, client, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("root"))
    plain, packed = (
        client.get("/jobs/", headers={"Accept-Encoding": coding}) for coding in ("identity", "gzip")
    )
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.content) < len(plain.content) / 2
    assert {"Accept-Encoding", "Cookie"} <= set(packed.headers["Vary"].split(", "))
    assert gzip.decompress(packed.content).startswith(b"\n<!doctype html>"[:5])
