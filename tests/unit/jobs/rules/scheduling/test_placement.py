"""Gang placement: never more than there is, all or none, and the same answer as a slow search of every way."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling.placement import GpuView, HostView, NoCapacity, Placer, ReplicaRequest, never_fits
from jobs.rules.spec.machine_types import Needs
from tests.unit.jobs.rules.views import examples

PORTS = range(23_000, 23_100)
T4, A100 = "NVIDIA_TESLA_T4", "NVIDIA_TESLA_A100"


def host(number, cpus=8, memory_mb=16_000, *, t4=0, a100=0, location="lab", **used):
    gpus = [GpuView(f"{number}-t4-{index}", T4, index) for index in range(t4)]
    gpus += [GpuView(f"{number}-a100-{index}", A100, t4 + index) for index in range(a100)]
    return HostView(
        number, f"gpu{number}", location, f"10.0.0.{number}", cpus, memory_mb, tuple(gpus), **used
    )


def requests(*needs):
    return [ReplicaRequest(f"workerpool0-{index}", each) for index, each in enumerate(needs)]


def gpus(count, kind=T4, cpus=1.0):
    return Needs(cpus=cpus, accelerator_type=kind, gpus=count)


def place(hosts, *needs, location="lab", **options):
    return Placer(hosts, PORTS).place(requests(*needs), location, **options)


def test_a_placement_names_host_gpus_and_port():
    used = {"used_gpus": frozenset({"1-t4-0"}), "used_ports": frozenset({23_000})}
    (placement,) = place([host(1, t4=4, **used)], gpus(2))
    assert (placement.host_id, placement.gpus, placement.port) == (1, ("1-t4-1", "1-t4-2"), 23_001)


def test_a_replicas_gpus_are_on_one_host():
    answer = place([host(1, t4=1), host(2, t4=1)], gpus(2))
    assert answer == NoCapacity(
        "Needs 1 x 2 NVIDIA_TESLA_T4 with 1 CPU in lab; 2 NVIDIA_TESLA_T4 free, at most 1 on one host; "
        "16 CPUs free, at most 8 on one host."
    )


def test_free_capacity_is_described_in_words():
    """One CPU is not "1 CPUs"."""
    one = place([host(1, cpus=1)], Needs(cpus=1), Needs(cpus=1))
    assert one == NoCapacity("Needs 2 x 1 CPU in lab; 1 CPU free, at most 1 on one host.")


def test_all_or_none_leaves_no_trace():
    placer = Placer([host(1, cpus=3)], PORTS)
    assert isinstance(placer.place(requests(*[Needs()] * 4), "lab"), NoCapacity)
    assert len({placement.port for placement in placer.place(requests(*[Needs()] * 3), "lab")}) == 3
    assert isinstance(placer.place(requests(Needs()), "lab"), NoCapacity)


def test_a_host_is_filled_before_the_next_is_opened():
    hosts = [host(1, t4=8), host(2, t4=8, used_gpus=frozenset(f"2-t4-{n}" for n in range(5)))]
    placer = Placer(hosts, PORTS)
    assert [placer.place(requests(gpus(1)), "lab")[0].host_id for _ in range(4)] == [2, 2, 2, 1]


def test_replicas_of_a_job_are_on_one_host_or_on_few():
    hosts = [host(1, t4=8), host(2, t4=8, used_gpus=frozenset(f"2-t4-{n}" for n in range(5))), host(3, t4=6)]
    assert [placement.host_id for placement in place(hosts, *[gpus(1)] * 4)] == [3] * 4
    assert [placement.host_id for placement in place(hosts, *[gpus(1, cpus=0.5)] * 11)] == [1] * 8 + [2] * 3
    assert len({placement.host_id for placement in place(hosts, *[gpus(2)] * 7)}) == 2


def test_work_without_gpus_keeps_off_gpu_hosts_while_it_can():
    hosts = [host(1, cpus=2, t4=8), host(2, cpus=2)]
    assert [placement.host_id for placement in place(hosts, Needs(), Needs(), Needs())] == [2, 2, 1]


def test_only_hosts_of_the_location_count():
    hosts = [host(1, location="lab"), host(2, location="cellar")]
    assert place(hosts, Needs(), location="cellar")[0].host_id == 2
    assert isinstance(place(hosts, *[Needs()] * 9, location="cellar"), NoCapacity)
    assert len(place(hosts, *[Needs()] * 9, location="any")) == 9
    assert place([], Needs()) == NoCapacity("Needs 1 x 1 CPU in lab; no host is there.")


def test_memory_and_ports_run_out_too():
    big = Needs(memory_mb=9_000)
    assert "at most 16000 MB of memory are free" in place([host(1)], big, big).text
    full = host(1, used_ports=frozenset(PORTS))
    assert isinstance(place([full], Needs()), NoCapacity)


def test_another_try_begins_with_another_port():
    ports = {place([host(1)], Needs(), spread=spread)[0].port for spread in range(300)}
    assert ports == set(PORTS)


def test_a_mixture_that_best_fit_alone_would_miss_is_found():
    hosts = [host(1, cpus=10), host(2, cpus=7)]
    needs = [Needs(cpus=float(cpus)) for cpus in (5, 4, 3, 3, 2)]
    assert not isinstance(place(hosts, *needs), NoCapacity)


def test_a_large_mixture_is_tried_by_cpus_too():
    """Twenty GPU workers placed first would take the twenty big hosts from the servers; a search takes too long."""
    hosts = [host(n, cpus=4 if n % 2 else 10, t4=1) for n in range(40)]
    needs = [gpus(1, cpus=4.0)] * 20 + [Needs(cpus=8.0)] * 20
    assert len(place(hosts, *needs)) == 40


def test_an_intricate_gang_is_never_refused_for_good_because_a_search_was_given_up():
    hosts = [host(n, cpus=100) for n in range(14)]
    triples = [(27 + n % 7, 31 + 3 * n % 5) for n in range(14)]
    needs = [Needs(cpus=float(cpus)) for a, b in triples for cpus in (a, b, 100 - a - b)]
    assert isinstance(place(hosts, *needs), NoCapacity)
    assert never_fits(requests(*needs), hosts, "lab") is None


def test_room_that_one_job_took_is_not_there_for_the_next():
    placer = Placer([host(1, t4=2)], PORTS)
    first, second = (placer.place(requests(gpus(1)), "lab")[0] for _ in range(2))
    assert {*first.gpus, *second.gpus} == {"1-t4-0", "1-t4-1"} and first.port != second.port


NEVER = [
    ([gpus(2)], None),
    ([gpus(3)], "at most 2 on one host"),
    ([gpus(2)] * 3, "4 NVIDIA_TESLA_T4 free"),
    ([gpus(1, A100)], "0 NVIDIA_TESLA_A100 free"),
    ([Needs(cpus=9.0)], "at most 8 on one host"),
    ([Needs(memory_mb=17_000)], "at most 16000 MB"),
    ([Needs()] * 16, None),
]


@pytest.mark.parametrize(("needs", "reason"), NEVER, ids=str)
def test_a_request_that_never_fits_is_distinguished_from_one_that_waits(needs, reason):
    used = {"used_cpus": 8.0, "used_memory_mb": 16_000, "used_ports": frozenset(PORTS)}
    hosts = [replace(host(n, t4=2, **used), used_gpus=frozenset({f"{n}-t4-0", f"{n}-t4-1"})) for n in (1, 2)]
    assert isinstance(place(hosts, *needs), NoCapacity)
    answer = never_fits(requests(*needs), hosts, "lab")
    assert answer is None if reason is None else reason in answer


# -- against a slow reference --

NEEDS = st.builds(
    Needs,
    st.sampled_from([1.0, 2.0, 3.0]),
    st.sampled_from([0, 4_000, 9_000]),
    st.sampled_from([T4, A100]),
    st.integers(0, 3),
).map(lambda needs: needs if needs.gpus else replace(needs, accelerator_type=""))
HOSTS = st.lists(
    st.builds(host, st.just(0), st.integers(1, 6), st.sampled_from([4_000, 16_000]), t4=st.integers(0, 4)),
    min_size=1,
    max_size=3,
).map(
    lambda hosts: [host(n, h.cpus, h.memory_mb, t4=len(h.gpus), a100=n % 2) for n, h in enumerate(hosts, 1)]
)


def fits_slowly(hosts, needs):
    """Every way to place them, by brute force."""

    def placement(rest, free):
        if not rest:
            return True
        first, *others = rest
        for number, (cpus, memory, kinds) in enumerate(free):
            left = kinds.get(first.accelerator_type, 0) - first.gpus
            if cpus >= first.cpus and memory >= first.memory_mb and (not first.gpus or left >= 0):
                changed = {**kinds, first.accelerator_type: left} if first.gpus else kinds
                after = [
                    *free[:number],
                    (cpus - first.cpus, memory - first.memory_mb, changed),
                    *free[number + 1 :],
                ]
                if placement(others, after):
                    return True
        return False

    return placement(
        needs, [(h.cpus, h.memory_mb, Counter(gpu.accelerator_type for gpu in h.gpus)) for h in hosts]
    )


@examples(250)
@given(HOSTS, st.lists(st.lists(NEEDS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_it_places_whenever_and_only_when_it_can(hosts, jobs):
    placer, taken = Placer(hosts, PORTS), defaultdict(list)
    used_gpus, used_ports = set(), set()
    for needs in jobs:
        free = [
            replace(
                each,
                cpus=each.cpus - sum(its_needs.cpus for its_needs, _ in taken[each.id]),
                memory_mb=each.memory_mb - sum(its_needs.memory_mb for its_needs, _ in taken[each.id]),
                gpus=tuple(gpu for gpu in each.gpus if gpu.uuid not in used_gpus),
            )
            for each in hosts
        ]
        placements = placer.place(requests(*needs), "lab")
        assert isinstance(placements, NoCapacity) == (not fits_slowly(free, needs))
        assert (
            placer.place(requests(*needs), "lab") == placements
            if isinstance(placements, NoCapacity)
            else True
        )
        for placement, each in zip(
            () if isinstance(placements, NoCapacity) else placements, needs, strict=False
        ):
            kinds = {
                gpu.uuid: gpu.accelerator_type for h in hosts if h.id == placement.host_id for gpu in h.gpus
            }
            assert [kinds[uuid] for uuid in placement.gpus] == [each.accelerator_type] * each.gpus
            assert (
                not used_gpus & set(placement.gpus) and (placement.host_id, placement.port) not in used_ports
            )
            used_gpus.update(placement.gpus)
            used_ports.add((placement.host_id, placement.port))
            taken[placement.host_id].append((each, placement))
    for each in hosts:
        assert sum(needs.cpus for needs, _ in taken[each.id]) <= each.cpus
        assert sum(needs.memory_mb for needs, _ in taken[each.id]) <= each.memory_mb


@examples(60)
@given(HOSTS, st.lists(NEEDS, min_size=1, max_size=4))
def test_the_order_of_hosts_and_replicas_does_not_matter(hosts, needs):
    answers = {isinstance(place(order, *needs[::-1]), NoCapacity) for order in permutations(hosts)}
    assert answers == {isinstance(place(hosts, *needs), NoCapacity)}
    assert answers == {never_fits(requests(*needs), hosts, "lab") is not None}


@given(HOSTS, st.lists(st.lists(NEEDS, min_size=1, max_size=4), min_size=1, max_size=6))
@examples(200)
def test_what_would_be_placed_takes_nothing(hosts, jobs):
    """A forecast asks one placer for many jobs: each is told what it would be if nobody had asked before."""
    shared = Placer(hosts, PORTS)
    for needs in [*jobs, *jobs]:
        assert shared.would_place(requests(*needs), "lab") == place(hosts, *needs)
