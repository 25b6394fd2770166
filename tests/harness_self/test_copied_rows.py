"""What fills PostgreSQL for `make scale` writes the rows that Django writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.models import QuerySet

from agents.models import Host, HostEvent, HostStatus, Location
from tests.scale import copied_rows

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 28, 20, 0, 0, 123_400, UTC)


def hosts(place, prefix):
    return [
        Host(name=f"{prefix}{n}", location=place, address="é\t\\N\n", created_at=NOW, status_since=NOW, cpus=n,
             status=HostStatus.UP, facts={"a": [n, None, "],\t["]}, clock_offset_s=[None, 0.5][n])
        for n in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize("write", [copied_rows._bulk_create, QuerySet.bulk_create], ids=["copied", "django"])
def test_rows_and_ids_are_those_of_django(write, monkeypatch):
    if connection.vendor == "postgresql":
        monkeypatch.setattr(QuerySet, "bulk_create", write)
    place = Location.objects.get_or_create(name="default")[0]
    made = Host.objects.bulk_create(hosts(place, "h"))
    events = HostEvent.objects.bulk_create(
        HostEvent(host=host, at=NOW, kind="checked", text="usable", actor="é") for host in made
    )
    monkeypatch.undo()
    Host.objects.bulk_create(hosts(place, "d"))
    own, other = (list(Host.objects.filter(name__startswith=each).order_by("pk").values()) for each in "hd")
    assert [row.pk for row in made] == [row["id"] for row in own] and len(events) == 2
    differs = {"id", "name"}
    assert [{k: v for k, v in row.items() if k not in differs} for row in own] == [
        {k: v for k, v in row.items() if k not in differs} for row in other
    ]
    assert set(HostEvent.objects.values_list("host", flat=True)) == {row.pk for row in made}
