"""Where a document names cloud storage."""

from __future__ import annotations

import pytest

from jobs.rules.spec.output_addresses import Address, OutputAddresses, addresses_in, base_address


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gs://bucket/runs/7/", [Address("bucket", "runs/7")]),
        ("--data=/gcs/bucket/x --out=gs://other-1/y", [Address("bucket", "x"), Address("other-1", "y")]),
        ("gs://bucket/a:gs://bucket/b", [Address("bucket", "a"), Address("bucket", "b")]),
        ("gs://bucket/job-2026-11-23-16:32:23.1/c", [Address("bucket", "job-2026-11-23-16:32:23.1/c")]),
        ("cp '/gcs/bucket/x' .", [Address("bucket", "x")]),
        ("gs://bucket/data/part-*.csv", [Address("bucket", "data")]),
        ("gs://bucket", [Address("bucket")]),
        ("gs://bucket/../x", [Address("bucket", "x")]),
        ("/data/gcs/bucket/x gs:// /gcs/ file:///gcs/bucket", []),
    ],
)
def test_addresses_stand_anywhere_in_a_text(text, found):
    assert addresses_in(text) == found


def test_the_output_directory_is_all_of_its_text():
    base = base_address("gs://staging/aiplatform-custom-job-2026-11-23-16:32:23.123")
    assert base == Address("staging", "aiplatform-custom-job-2026-11-23-16:32:23.123")
    assert base_address("/gcs/bucket/a b/") == Address("bucket", "a b")
    assert base_address("/data/out") is None and base_address("gs:///data") is None


def test_an_address_below_another_one_is_not_fetched_twice():
    named = (
        Address("bucket", "run/model"),
        Address("bucket", "run"),
        Address("bucket", "runs"),
        Address("other"),
    )
    found = OutputAddresses(None, named).of({"bucket": ""})
    assert found == (Address("bucket", "run"), Address("bucket", "runs"))
