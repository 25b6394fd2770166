"""Times are read from PostgreSQL as Django reads them, and by our own way in every process that sets up Django."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db.backends.postgresql.psycopg_any import BaseTzLoader, get_adapters_template
from psycopg.postgres import types

from agents.infra.time_loader import TimeLoader
from agents.models import Host, Location

OURS, THEIRS = TimeLoader(types["timestamptz"].oid), BaseTzLoader(types["timestamptz"].oid)
ODD = ("infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "10000-01-01 00:00:00+00", "", "soon+00")


def written(at: datetime) -> bytes:
    """As PostgreSQL writes it: without zeros at the end."""
    text = f"{at.year:04}-{at:%m-%d %H:%M:%S}"
    return (
        f"{text}.{at:%f}".rstrip("0").rstrip(".").encode() + b"+00"
        if at.microsecond
        else f"{text}+00".encode()
    )


def some_times():
    dice = random.Random(7)
    yield from (
        datetime.min,
        datetime.max,
        datetime(2026, 11, 28),
        datetime(2000, 2, 29, 23, 59, 59, 100_000),
    )
    for _ in range(300):
        at = datetime.min + timedelta(microseconds=dice.randrange(9999 * 365 * 86_400 * 10**6))
        yield at.replace(
            microsecond=at.microsecond // 10 ** dice.randrange(7) * 10 ** dice.randrange(4) % 10**6
        )


@pytest.mark.parametrize("at", list(some_times()), ids=str)
def test_every_time_is_what_was_stored(at):
    read = OURS.load(written(at))
    assert read == at.replace(tzinfo=UTC) == THEIRS.load(written(at)).replace(tzinfo=UTC)
    assert read.tzinfo is UTC and OURS.load(memoryview(written(at))) == read


def test_a_session_in_another_zone_is_read_by_django():
    """Django never has one. Its way of reading keeps the clock and changes the zone."""
    assert OURS.load(b"2026-03-01 12:00:00.5+05:30") == datetime(2026, 3, 1, 6, 30, 0, 500_000, UTC)


@pytest.mark.parametrize("text", ODD)
def test_what_is_no_time_of_python_is_refused_as_before(text):
    with pytest.raises(psycopg.DataError) as theirs:
        THEIRS.load(text.encode())
    with pytest.raises(psycopg.DataError) as ours:
        OURS.load(text.encode())
    assert str(ours.value) == str(theirs.value)


def test_each_process_that_sets_up_django_reads_so():
    found = get_adapters_template(True, UTC).get_loader(types["timestamptz"].oid, psycopg.pq.Format.TEXT)
    assert found is TimeLoader


@pytest.mark.django_db
def test_a_time_that_is_stored_is_read_again():
    times = [datetime(2026, 11, 28, 20, 0, 0, each, UTC) for each in (0, 1, 10, 123_450, 999_999)]
    place = Location.objects.get_or_create(name="default")[0]
    Host.objects.bulk_create(
        Host(name=f"h{number}", location=place, address="a", created_at=at, status_since=at)
        for number, at in enumerate(times)
    )
    assert list(Host.objects.order_by("pk").values_list("status_since", flat=True)) == times
