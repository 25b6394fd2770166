"""A machine type's memory, on hosts whose administrator has given the login a memory cgroup of its own."""

from __future__ import annotations

import pytest

from tests.behaviour.observed_job import GRPC_INVALID, ObservedJob
from tests.harness.hosts import memory

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.needs_cgroups]
# Three times its limit, and no more: where limits are not enforced it does no harm.
EATS = "food = [bytearray(8 << 20) for _ in range(30)]"


class Fed:
    """One job that needs more memory than its machine type has, beside one that does not."""

    def __init__(self, yard):
        small = f"{yard.client.url}/api/v1/machineTypes/small-memory"
        yard.client.call("PUT", small, json={"cpus": 0.5, "memoryMb": 128})
        beside = ObservedJob(
            yard, {"command": ["replica", "--seconds", "2"], "machine": "small-memory"}, name="modest"
        ).running()
        self.limit = beside.run()
        self.hungry = ObservedJob(
            yard, {"command": ["python3", "-c", EATS], "machine": "small-memory"}, name="hungry"
        )
        self.hungry.over("FAILED")
        self.beside = beside.over("SUCCEEDED")


@pytest.fixture(scope="module")
def fed(yard):
    try:
        for host in yard.fleet:
            memory.give(host)
        yard.wait_for_hosts("up")
        yield Fed(yard)
    finally:
        for host in yard.fleet:
            memory.take_back(host)
        yard.wait_for_hosts("up")


def test_S0_32_out_of_memory_has_the_documented_message_and_is_certain(fed):
    assert fed.hungry.error == {
        "code": GRPC_INVALID,
        "message": "The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137.",
    }
    [run] = fed.hungry.runs()
    assert (run["outOfMemory"], run["outOfMemorySure"]) == (True, "certain")
    assert fed.hungry.ours["retries"] == 0


def test_S1_05_S2_04_the_page_says_it_in_the_readers_language(fed):
    portuguese = "A réplica workerpool0-0 ficou sem memória e saiu com um status diferente de zero de 137."
    korean = "복제본 workerpool0-0의 메모리가 부족하여 0이 아닌 137 상태로 종료되었습니다."
    assert portuguese in fed.hungry.page_in("pt-BR") and korean in fed.hungry.page_in("ko")


def test_the_memory_of_a_machine_type_is_a_limit_where_the_host_allows_it(fed):
    """The limit is the allocatable part of 128 MB, without the share that is kept for the host."""
    assert (fed.limit["memoryLimitMb"], fed.limit["memoryLimitEnforced"]) == (77, True)
    assert fed.beside.run()["outOfMemory"] is False
