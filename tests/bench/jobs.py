"""The time to a job's first line, and the number of jobs finished in a minute."""

from __future__ import annotations

import json
import time

from tests.bench import processor_time
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
    srun, why = slurm_first_lines(count)
    for name, times, bound in (
        ("POST sent → first line at a WebSocket client", [sent for sent, _ in ours], 60),
        ("POST answered → first line at a WebSocket client", [answered for _, answered in ours], 35),
    ):
        p50 = percentile(times, 0.5)
        yield Figure(
            name,
            spread(times),
            f"ssh ControlMaster {spread(ssh)}",
            p50 / percentile(ssh, 0.5),
            f"p50 ≤ {bound} ms",
            p50 <= bound,
        )
        ratio = p50 / percentile(srun, 0.5) if srun else None
        yield Figure("the same beside srun", spread(times), f"srun {spread(srun)}" if srun else why, ratio)


def first_line_ms(product):
    """Measure from before the POST, and from its answer, until the first byte of the log is at the client."""
    client, document = product.client, job_spec(HELLO, name="first line")
    sent = time.perf_counter()
    job_id = client.submit(document)
    answered = time.perf_counter()
    with client.socket(f"/ws/jobs/{job_id}/log/workerpool0-0") as socket:
        socket.send(json.dumps({"from": 0}))
        while not isinstance(socket.recv(timeout=30), bytes):
            pass
        came = time.perf_counter()
    # As the references do: with a few jobs at once, the next one would wait for a processor of the hosts.
    client.wait(job_id, "SUCCEEDED")
    return (came - sent) * 1000, (came - answered) * 1000


def slurm_first_lines(count):
    """Return the times of `srun`, or why there are none. Ours is told all the same."""
    try:
        with Slurm() as slurm:
            return [slurm.first_line_ms() for _ in range(count)], ""
    except NoSlurm as why:
        return [], str(why)


def throughput(options):
    count = 50 if options.quick else MANY
    references = {
        "sbatch": slurm_jobs_per_minute(count, tuned=False),
        "sbatch, tuned": slurm_jobs_per_minute(count, tuned=True),
    }
    for shape, words, aim in (("apart", "PostgreSQL + Redis", 2400), ("embedded", "embedded", 600)):
        with product_on_hosts(shape, hosts=10) as product:
            jobs_per_minute(product, 20)
            product.settle()
            before = processor_time.by_part(product)
            ours = jobs_per_minute(product, count)
            parts, total = processor_time.milliseconds_each(before, processor_time.by_part(product), count)
        name = f"{count} one-replica jobs on 10 hosts, {words}"
        for reference, (theirs, why) in references.items():
            text = f"{reference} {theirs:.0f}/min" if theirs else why
            ratio = ours / theirs if theirs else None
            yield Figure(name, f"{ours:.0f} jobs/min", text, ratio, f"≥ {aim}/min", ours >= aim)
        yield Figure(f"processor time of one of these jobs, {words}", f"{total:.1f} ms", parts)


def jobs_per_minute(product, count):
    """Submit all as fast as one client can, and measure until the last is SUCCEEDED."""
    document = job_spec(["true"], name="many")
    begin = time.perf_counter()
    ids = [product.client.submit(document) for _ in range(count)]
    unfinished = f"SELECT id FROM jobs_job WHERE state <> 'SUCCEEDED' AND id >= {ids[0]}"
    wait_for(lambda: not product.query(unfinished), "every job to succeed", timeout=300, every=0.05)
    return count / (time.perf_counter() - begin) * 60


def slurm_jobs_per_minute(count, tuned):
    """Return the jobs a minute of `sbatch`, or 0 and why there are none."""
    try:
        with Slurm(tuned) as slurm:
            return slurm.jobs_per_minute(count), ""
    except NoSlurm as why:
        return 0.0, str(why)
