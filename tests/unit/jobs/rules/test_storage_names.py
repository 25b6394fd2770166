"""Names of buckets and objects: what could not be the path of a file on a host is refused."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules import storage_names
from jobs.rules.storage_names import address_of, after_prefix, bucket_problem, object_problem


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "//", "a//b", "/a", ".", "..", "../x", "a/../b", "a/.", "a/./b", "..//"),
        *("a\0b", "a\nb", "a\rb", "a\x1bb", "a\x85b", "a\u2028b", "\ud800", "x" * 1025, "é" * 513),
    ],
)
def test_what_no_file_could_be_called_is_refused(name):
    assert object_problem(name)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a/b",
        "a/",
        "...",
        "a..b",
        ".hidden",
        "é" * 512,
        "x" * 1024,
        "模型/权重.pt",
        "a b",
        "%2e%2e",
        "a\\b",
    ],
)
def test_names_that_people_use_are_taken(name):
    assert object_problem(name) is None


@given(st.text(max_size=40).map(lambda text: text.replace("\\", "/")) | st.text(alphabet="./a", max_size=8))
def test_a_name_that_is_taken_never_leaves_its_bucket(name):
    if object_problem(name) is None:
        path = PurePosixPath("/gcs/bucket") / name
        assert path.is_relative_to("/gcs/bucket")
        assert ".." not in path.parts
        assert str(path) == f"/gcs/bucket/{name}".removesuffix("/")


@pytest.mark.parametrize(
    "name", ["", "ab", "A-bucket", "-bucket", "bucket-", "a..b", "a/b", "é" * 5, "x" * 64, "a b c", "a\n\n"]
)
def test_names_that_no_bucket_may_have(name):
    assert bucket_problem(name)


@pytest.mark.parametrize("name", ["abc", "my-bucket", "my_bucket.v2", "0" * 63])
def test_names_that_a_bucket_may_have(name):
    assert bucket_problem(name) is None


def test_an_address_is_taken_apart_and_put_together():
    found = address_of("gs://my-bucket/a/b.tar.gz")
    assert found is not None
    assert (found.bucket, found.name, str(found)) == ("my-bucket", "a/b.tar.gz", "gs://my-bucket/a/b.tar.gz")
    assert str(address_of("gs://my-bucket")) == "gs://my-bucket/"


@pytest.mark.parametrize(
    "uri", ["", "my-bucket/a", "s3://my-bucket/a", "gs:/my-bucket/a", "gs://", "gs://x/a", "gs://bucket/../a"]
)
def test_what_is_no_address_has_no_parts(uri):
    assert address_of(uri) is None


@given(st.text(min_size=1), st.text())
def test_what_begins_with_a_prefix_comes_before_what_follows_it(prefix, rest):
    start, whole = (text.encode("utf-8", "ignore") for text in (prefix, prefix + rest))
    if start:
        assert start <= whole < after_prefix(start)


def test_the_longest_name_is_counted_in_bytes():
    assert storage_names.MAX_NAME_BYTES == 1024
    assert object_problem("é" * 512) is None
    assert "1024 bytes" in str(object_problem("é" * 512 + "x"))
