"""Which GPUs of a host a replica gets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling.topology import SAME_NODE, choose_gpus, read
from jobs.rules.scheduling.views import Topology
from tests.unit.jobs.rules.views import examples

UUIDS = {index: f"GPU-{index}" for index in range(8)}
# Pairs by NVLink, two NUMA nodes of four.
PAIRS = {
    "links": [[0, 3, 104], [1, 2, 104], [4, 7, 104], [5, 6, 104]],
    "numa": {str(index): index // 4 for index in range(8)},
}


def chosen(free, count, reported=PAIRS):
    return choose_gpus([UUIDS[index] for index in free], count, read(reported, UUIDS))


@pytest.mark.parametrize(
    ("free", "count", "indexes"),
    [
        (range(8), 2, (0, 3)),  # linked, not just neighbours by number
        ((0, 1, 2, 5, 6), 2, (5, 6)),  # both are linked; nobody else misses these
        ((0, 1, 4, 5, 6), 2, (5, 6)),
        (range(8), 4, (0, 1, 2, 3)),  # one node
        ((0, 1, 2, 3, 4, 7), 1, (4,)),
        ((1, 4, 7), 1, (1,)),  # the single one: a pair stays together
        ((2, 3, 5, 6, 7), 3, (5, 6, 7)),
        ((1, 6), 2, (1, 6)),
    ],
)
def test_near_gpus_are_taken_together_and_left_together(free, count, indexes):
    assert chosen(free, count) == tuple(UUIDS[index] for index in indexes)


def test_without_a_topology_the_first_are_taken():
    assert chosen((2, 5, 6), 2, {}) == ("GPU-2", "GPU-5")
    assert read({}, UUIDS) is None and read([], UUIDS) is None


@pytest.mark.parametrize(
    "reported",
    [{"links": "x", "numa": [1]}, {"links": [[0], [0, 0, 1], [0, 9, 7], ["a", 1, 2], [0, 1, -4], None]}],
)
def test_an_invalid_topology_is_ignored(reported):
    assert read(reported, UUIDS) is None


def test_a_link_is_nearer_than_a_node():
    assert read(PAIRS, UUIDS).between("GPU-3", "GPU-0") == 104
    assert read(PAIRS, UUIDS).between("GPU-0", "GPU-1") == SAME_NODE
    assert read(PAIRS, UUIDS).between("GPU-0", "GPU-4") == 0


@examples(60)
@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 50)), st.integers(1, 6)
)
def test_no_other_choice_is_nearer(weights, count):
    names = [f"g{index}" for index in range(6)]
    near = {(names[one], names[other]): weight for (one, other), weight in weights.items() if one < other}
    topology = Topology(near)

    def inside(group):
        return sum(topology.between(one, other) for one, other in combinations(group, 2))

    found = choose_gpus(names, count, topology)
    assert len(set(found)) == count and list(found) == sorted(found)
    assert inside(found) == max(inside(group) for group in combinations(names, count))


def test_on_a_large_host_near_gpus_are_chosen():
    uuids = {index: f"GPU-{index:02}" for index in range(16)}
    links = [[one, other, 50] for one, other in combinations(range(0, 16, 2), 2)]
    assert choose_gpus(list(uuids.values()), 8, read({"links": links}, uuids)) == tuple(
        uuids[i] for i in range(0, 16, 2)
    )
