"""`make scale` asks for every page and REST address: a new one is measured, or left out with a reason."""

from __future__ import annotations

import pytest

from console.api.urls import urlpatterns as rest_urls
from console.views.urls import urlpatterns as page_urls
from tests.harness import addresses as tables
from tests.scale import addresses, measure
from tests.scale.people import ADMIN
from tests.scale.seed import Seeder, Size

# Two replicas and more, and a page of every list.
TINY = Size(jobs=60, hosts=6, people=12)


@pytest.fixture
def asked(db, settings):
    settings.ALLOWED_HOSTS = ["*"]
    Seeder(TINY).fill()
    return addresses.requests()


@pytest.mark.slow
def test_every_address_is_asked_for_or_left_out_with_a_reason(asked):
    admin = measure.Person(ADMIN)
    # Raises where an address answers neither a page, nor that it takes no GET.
    counted = [measure.count(admin, each) for each in asked if not each.fragment]
    assert sum(queries is not None for queries in counted) > len(counted) / 2
    values = addresses.examples(addresses.Seeded.read())
    paths = {each.path.partition("?")[0] for each in asked}
    pages = {name for name, path in tables.pages(values).items() if path not in paths}
    rest = {path for path in tables.rest(values) if path not in paths}
    assert pages < set(addresses.LEFT_OUT), pages - set(addresses.LEFT_OUT)
    assert len(rest) < len(rest_urls) / 10 and len(pages) < len(page_urls) / 5, (pages, rest)


def test_each_reason_is_about_an_address_that_is_there(asked):
    values = addresses.examples(addresses.Seeded.read())
    rest = tables.rest(values)
    for end in set(addresses.LEFT_OUT) - {each.name for each in page_urls}:
        assert any(path.endswith(end.format(job=values["job_id"])) for path in rest), end
