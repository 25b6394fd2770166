"""The network cards of a location: advice about reducers counts with them."""

from __future__ import annotations

import pytest

from agents.models import Host
from jobs.rules.spec import reduction
from jobs.rules.spec.parse import parse_custom_job
from jobs.rules.spec.reduction_advice import NO_CARDS, Cards
from jobs.scheduling import network_cards, output_directories

pytestmark = pytest.mark.django_db

PLAIN = {"containerSpec": {"imageUri": "host", "command": ["python3", "train.py"]}}
REDUCERS = {"replicaCount": "2", "containerSpec": {"imageUri": reduction.IMAGES[0]}}


def spec_of(*pools):
    return parse_custom_job({"displayName": "x", "jobSpec": {"workerPoolSpecs": list(pools)}}).job_spec


@pytest.fixture
def reduced():
    return spec_of(PLAIN, {**PLAIN, "replicaCount": "3"}, REDUCERS)


def has_cards(host, mbit, infiniband=False):
    """What the check of this host has found."""
    rows = [{"name": "eth0", "address": host.row.address, "mbit": mbit}]
    facts = {"network": {"interfaces": rows, "infiniband": infiniband}}
    Host.every.filter(pk=host.row.pk).update(facts=facts)


def test_the_cards_of_a_locations_hosts_are_found(add_host, reduced):
    slow, fast = add_host("slow", cpus=4), add_host("fast", cpus=4)
    add_host("old", cpus=4)
    location = slow.row.location.name
    assert network_cards.of_job(reduced, location) == NO_CARDS
    has_cards(slow, 1_000)
    has_cards(fast, 10_000, infiniband=True)
    assert network_cards.of_job(reduced, location) == Cards((1_000, 10_000), ("fast",))
    texts = " ".join(each.text for each in output_directories.advice_about(reduced, location))
    assert "from 1 to 10 Gbit/s" in texts and "InfiniBand on fast" in texts


def test_a_job_without_reducers_asks_for_no_host(reduced, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert network_cards.of_job(spec_of(PLAIN), "default") == NO_CARDS
