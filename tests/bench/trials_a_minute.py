"""Trials of a study that are over in a minute, beside plain jobs of the same program on the same hosts."""

from __future__ import annotations

import time

from jobs.rules.tuning.study import DEFAULT_ALGORITHM, RANDOM
from tests.bench.figures import Figure
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

TRIALS, PARALLEL, HOSTS = 200, 8, 4
# As many fit on the hosts as trials run at once, so plain jobs too run so many at a time.
MACHINE = "bench-eighth"
LEAST = 0.7
# It gets the parameter behind its own arguments, and reports in the file that every program has.
PROGRAM = """sleep 0.2; echo "{\\"step\\": 1, \\"loss\\": ${1#--x=}}" >> "$TRAINYARD_METRICS\""""


def trials_a_minute(options):
    count = 24 if options.quick else TRIALS
    with product_on_hosts("apart", hosts=HOSTS) as product:
        cpus = min(row["cpus"] for row in product.query("SELECT cpus FROM agents_host"))
        machine = {"cpus": cpus * HOSTS / PARALLEL, "memoryMb": 64}
        product.client.call("PUT", f"{product.client.url}/api/v1/machineTypes/{MACHINE}", json=machine)
        jobs_of(product, PARALLEL)
        product.settle()
        # Before and behind: what else the machine does may change meanwhile.
        before = jobs_of(product, count)
        model, chance = (study_of(product, count, each) for each in (DEFAULT_ALGORITHM, RANDOM))
        plain = (before + jobs_of(product, count)) / 2
        product.settle()
    for name, ours in (("", model), (", RANDOM_SEARCH", chance)):
        yield Figure(
            f"{count} trials of 0.2 s, {PARALLEL} at once, on {HOSTS} hosts{name}",
            f"{ours:.0f} trials/min",
            f"plain jobs {plain:.0f}/min",
            ours / plain,
            f"≥ {LEAST} ×",
            ours >= LEAST * plain,
        )


def jobs_of(product, count):
    """Jobs a minute: all are submitted as fast as one client can, until the last is SUCCEEDED."""
    pool = {"machine": MACHINE, "command": ["sh", "-c", PROGRAM, "job", "--x=0.5"]}
    begin = time.perf_counter()
    ids = [product.client.submit(job_spec(pool, name="plain")) for _ in range(count)]
    left = f"SELECT id FROM jobs_job WHERE state <> 'SUCCEEDED' AND id >= {ids[0]}"
    wait_for(lambda: not product.query(left), "every job to succeed", timeout=600, every=0.05)
    return count / (time.perf_counter() - begin) * 60


def study_of(product, count, algorithm):
    """Trials a minute, until the study is over."""
    pool = {"machine": MACHINE, "command": ["sh", "-c", PROGRAM, "trial"]}
    document = {
        "displayName": "bench",
        "studySpec": {
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}],
            "algorithm": algorithm,
        },
        "maxTrialCount": count,
        "parallelTrialCount": PARALLEL,
        "trialJobSpec": job_spec(pool)["jobSpec"],
    }
    url = product.client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
    begin = time.perf_counter()
    made = product.client.call("POST", url, json=document).json()["name"].rpartition("/")[2]
    over = f"SELECT state FROM jobs_tuningjob WHERE id = {made} AND ended_at IS NOT NULL"
    [row] = wait_for(lambda: product.query(over), "the study to end", timeout=600, every=0.05)
    took = time.perf_counter() - begin
    assert row["state"] == "SUCCEEDED", row
    [done] = product.query(
        f"SELECT count(*) AS n FROM jobs_trial WHERE tuning_job_id = {made} AND state = 'SUCCEEDED'"
    )
    assert done["n"] == count, f"{done['n']} of {count} trials succeeded"
    return count / took * 60
