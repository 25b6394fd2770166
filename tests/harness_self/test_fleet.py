"""Several threads use the hosts of one fleet at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.harness.hosts import Fleet


def test_each_thread_that_starts_ssh_finds_the_keys_of_all_hosts():
    with ThreadPoolExecutor(4) as threads, Fleet(2) as fleet:
        whole = fleet.write_known_hosts().read_text()
        assert all(host.host_key_line in whole for host in fleet)
        seen = list(threads.map(lambda _: fleet.write_known_hosts().read_text(), range(2000)))
    assert seen == [whole] * 2000
