"""How much later a job starts whose Python package its host has already, beside the same program of the host."""

from __future__ import annotations

import json
import time

from tests.bench.figures import Figure, percentile, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.product import job_spec
from tests.unit.agents.runner.test_environments import wheel

PROGRAM = "print('first', flush=True)\n"
LATER_MS = 300


def second_start(options):
    """The host has made the environment for the first job; the later ones find it."""
    count = 5 if options.quick else 30
    with product_on_hosts("apart", hosts=1) as product:
        bare = job_spec(["python3", "-c", PROGRAM], name="bare")
        packed = with_package(product)
        first, _ = first_line_ms(product, packed, patience=400)
        for document in (bare, packed, bare, packed):
            first_line_ms(product, document)
        # In turns, so that both meet the same machine.
        pairs = [[first_line_ms(product, each)[0] for each in (bare, packed)] for _ in range(count)]
    plain, ours = (list(times) for times in zip(*pairs, strict=True))
    later = percentile(ours, 0.5) - percentile(plain, 0.5)
    yield Figure(
        "POST → first line of a Python package that the host has",
        spread(ours),
        f"the same program, of the host {spread(plain)}",
        percentile(ours, 0.5) / percentile(plain, 0.5),
        f"p50 ≤ {LATER_MS} ms later",
        later <= LATER_MS,
    )
    yield Figure("the first job with this package, which makes its environment", f"{first / 1000:.1f} s")


def with_package(product):
    url = f"{product.url}/api/v1/projects/default/buckets"
    product.client.call("POST", url, json={"name": "bench-packages"})
    name = "trainer-1.0-py3-none-any.whl"
    where = f"{product.url}/upload/storage/v1/b/bench-packages/o"
    data = wheel("trainer", "1.0", PROGRAM)
    product.client.call("POST", where, params={"uploadType": "media", "name": name}, data=data)
    document = job_spec(["x"], name="package")
    [pool] = document["jobSpec"]["workerPoolSpecs"]
    del pool["containerSpec"]
    uris = [f"gs://bench-packages/{name}"]
    pool["pythonPackageSpec"] = {
        "executorImageUri": "host",
        "packageUris": uris,
        "pythonModule": "trainer",
    }
    return document


def first_line_ms(product, document, patience=30):
    """From before the POST until the first byte of the log is at the client; and the job."""
    began = time.perf_counter()
    job = product.client.submit(document)
    with product.client.socket(f"/ws/jobs/{job}/log/workerpool0-0") as socket:
        socket.send(json.dumps({"from": 0}))
        while not isinstance(socket.recv(timeout=patience), bytes):
            pass
        took = (time.perf_counter() - began) * 1000
    product.client.wait(job, "SUCCEEDED")
    return took, job
