"""Trials of a study that are over in a minute, beside plain jobs of the same program on the same hosts."""

from __future__ import annotations

import time
from collections import defaultdict

from jobs.rules.tuning.study import DEFAULT_ALGORITHM, RANDOM
from tests.bench import processor_time
from tests.bench.figures import Figure
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

TRIALS, PARALLEL, HOSTS = 200, 20, 10
# As many fit on the hosts as trials run at once, so plain jobs too run so many at a time.
MACHINE = "bench-half"
LEAST = 0.7
# `true`, but for one line: a study whose first trial measures nothing has failed. It gets the parameter behind its own
# arguments, and reports in the file that every program has.
PROGRAM = """echo "{\\"step\\": 1, \\"loss\\": ${1#--x=}}" >> "$TRAINYARD_METRICS\""""


def trials_a_minute(options):
    count = 40 if options.quick else TRIALS
    plain = Sum(count)
    ours = {"": Sum(count), ", RANDOM_SEARCH": Sum(count)}
    with product_on_hosts("apart", hosts=HOSTS) as product:
        cpus = min(row["cpus"] for row in product.query("SELECT cpus FROM agents_host"))
        machine = {"cpus": cpus * HOSTS / PARALLEL, "memoryMb": 64}
        product.client.call("PUT", f"{product.client.url}/api/v1/machineTypes/{MACHINE}", json=machine)
        jobs_of(product, PARALLEL)
        study_of(product, PARALLEL, DEFAULT_ALGORITHM)
        product.settle()
        # In turns: what else the machine does may change meanwhile.
        for name, algorithm in (("", DEFAULT_ALGORITHM), (", RANDOM_SEARCH", RANDOM)):
            plain.add(product, jobs_of)
            ours[name].add(product, study_of, algorithm)
        product.settle()
    for name, each in ours.items():
        yield Figure(
            f"a study of {count} trials of one line, {PARALLEL} at once, on {HOSTS} hosts{name}",
            f"{each.a_minute():.0f} trials/min ({each.processor_time()})",
            f"plain jobs {plain.a_minute():.0f}/min ({plain.processor_time()})",
            each.a_minute() / plain.a_minute(),
            f"≥ {LEAST} ×",
            each.a_minute() >= LEAST * plain.a_minute(),
        )


class Sum:
    """Several rounds of one kind: how long they took, and what processors did meanwhile."""

    def __init__(self, count):
        self.count, self.rounds, self.seconds = count, 0, 0.0
        self.used = defaultdict(float)

    def add(self, product, act, *args):
        before = processor_time.by_part(product)
        self.seconds += act(product, self.count, *args)
        for part, seconds in processor_time.by_part(product).items():
            self.used[part] += seconds - before[part]
        self.rounds += 1

    def a_minute(self):
        return self.count * self.rounds / self.seconds * 60

    def processor_time(self):
        nothing = dict.fromkeys(self.used, 0.0)
        parts, total = processor_time.milliseconds_each(nothing, self.used, self.count * self.rounds)
        return f"{total:.0f} ms of processors each: {parts}"


def jobs_of(product, count):
    """Seconds: all are submitted as fast as one client can, until the last is SUCCEEDED."""
    pool = {"machine": MACHINE, "command": ["sh", "-c", PROGRAM, "job", "--x=0.5"]}
    begin = time.perf_counter()
    ids = [product.client.submit(job_spec(pool, name="plain")) for _ in range(count)]
    left = f"SELECT id FROM jobs_job WHERE state <> 'SUCCEEDED' AND id >= {ids[0]}"
    wait_for(lambda: not product.query(left), "every job to succeed", timeout=600, every=0.05)
    return time.perf_counter() - begin


def study_of(product, count, algorithm):
    """Seconds until the study is over."""
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
    return took
