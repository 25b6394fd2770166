"""The time to a job's first line, and the number of jobs finished in a minute."""

from __future__ import annotations

import json
import time

from tests.bench.figures import Figure, percentile, spread
from tests.bench.hosts_and_product import Master, product_on_hosts
from tests.bench.slurm import NoSlurm, Slurm
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

HELLO = ["sh", "-c", "echo first; sleep 0.2"]
MANY = 200


def first_line(options):
    count = 10 if options.quick else 60
    with product_on_hosts("apart") as product:
        for _ in range(3):
            first_line_ms(product)
        ours = [first_line_ms(product) for _ in range(count)]
        product.settle()
        with Master(product.fleet[0]) as master:
            ssh = [master.first_line_ms() for _ in range(count)]
    aim, p50 = "p50 ≤ 100 ms", percentile(ours, 0.5)
    name = "POST accepted → first line at a WebSocket client"
    yield Figure(
        name, spread(ours), f"ssh ControlMaster {spread(ssh)}", p50 / percentile(ssh, 0.5), aim, p50 <= 100
    )
    try:
        with Slurm() as slurm:
            srun = [slurm.first_line_ms() for _ in range(count)]
        yield Figure(
            "the same beside srun", spread(ours), f"srun {spread(srun)}", p50 / percentile(srun, 0.5)
        )
    except NoSlurm as why:
        yield Figure("the same beside srun", spread(ours), str(why))


def first_line_ms(product):
    """Measure from the answer to the POST until the first byte of the log is at the client."""
    client = product.client
    job_id = client.submit(job_spec(HELLO, name="first line"))
    begin = time.perf_counter()
    with client.socket(f"/ws/jobs/{job_id}/log/workerpool0-0") as socket:
        socket.send(json.dumps({"from": 0}))
        while not isinstance(socket.recv(timeout=30), bytes):
            pass
        return (time.perf_counter() - begin) * 1000


def throughput(options):
    slurm = slurm_jobs_per_minute(options)
    for shape, words, aim in (("apart", "PostgreSQL + Redis", 1100), ("embedded", "embedded", 600)):
        with product_on_hosts(shape, hosts=10) as product:
            jobs_per_minute(product, 20)
            ours = jobs_per_minute(product, 50 if options.quick else MANY)
        reference = f"sbatch {slurm:.0f}/min" if slurm else "no Slurm here"
        ratio = ours / slurm if slurm else None
        name = f"{MANY} one-replica jobs on 10 hosts, {words}"
        yield Figure(name, f"{ours:.0f} jobs/min", reference, ratio, f"≥ {aim}/min", ours >= aim)


def jobs_per_minute(product, count):
    """Submit all as fast as one client can, and measure until the last is SUCCEEDED."""
    document = job_spec(["true"], name="many")
    begin = time.perf_counter()
    ids = [product.client.submit(document) for _ in range(count)]
    unfinished = f"SELECT id FROM jobs_job WHERE state <> 'SUCCEEDED' AND id >= {ids[0]}"
    wait_for(lambda: not product.query(unfinished), "every job to succeed", timeout=300, every=0.05)
    return count / (time.perf_counter() - begin) * 60


def slurm_jobs_per_minute(options):
    try:
        with Slurm() as slurm:
            return slurm.jobs_per_minute(50 if options.quick else MANY)
    except NoSlurm:
        return None
