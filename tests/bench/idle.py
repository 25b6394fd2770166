"""The cost of many links that are held and not used."""

from __future__ import annotations

import time

from tests.bench.figures import Figure
from tests.bench.hosts_and_product import cpu_seconds, product_on_hosts, rss_mb


def idle_links(options):
    count = 20 if options.quick else 100
    with product_on_hosts("embedded", hosts=count) as product:
        time.sleep(10)
        dispatcher = product.processes.of("dispatcher")
        begin, before = time.perf_counter(), cpu_seconds(dispatcher)
        time.sleep(30)
        share = (cpu_seconds(dispatcher) - before) / (time.perf_counter() - begin) * 100
        memory = rss_mb(dispatcher)
    met = share <= 10 and memory <= 300
    yield Figure(
        f"{count} idle links", f"{share:.1f} % of a core, {memory:.0f} MB", "", None, "≤ 10 %, ≤ 300 MB", met
    )
