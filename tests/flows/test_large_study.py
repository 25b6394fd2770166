"""A study of a thousand trials, fifty at once, through real hosts: each of them is one job that ran once."""

from __future__ import annotations

from collections import Counter

import pytest

from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.search.suggest import suggest
from jobs.rules.tuning.study import RANDOM
from tests.flows.test_tuning import SEED, Study
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(5400)]

TRIALS, PARALLEL = 1000, 50
TIMEOUT_S = 4800
MACHINE = "large-study"
# It leaves a line on its host, each time that it runs.
LEDGER = "large-study"
PROGRAM = f"""echo "$CLOUD_ML_TRIAL_ID" >> "$HOME/{LEDGER}"
echo "{{\\"step\\": 1, \\"loss\\": ${{1#--x=}}}}" >> "$TRAINYARD_METRICS\""""


@pytest.fixture(scope="module")
def shape():
    return "apart"


class LargeStudy(Study):
    trials = TRIALS

    def __init__(self, yard):
        # As many fit on the hosts as trials may run at once.
        cpus = sum(row["cpus"] for row in yard.query("SELECT cpus FROM agents_host"))
        machine = {"cpus": cpus / PARALLEL, "memoryMb": 16}
        yard.client.call("PUT", f"{yard.url}/api/v1/machineTypes/{MACHINE}", json=machine)
        self.most = 0
        super().__init__(yard, PARALLEL, algorithm=RANDOM)

    def job_of_trials(self):
        return job_spec({"machine": MACHINE, "command": ["sh", "-c", PROGRAM, "trial"]})

    def is_over(self):
        """Between two looks the jobs of its trials that are not over are never more than may run at once."""
        unfinished = (
            "SELECT count(*) AS n FROM jobs_trial JOIN jobs_job ON jobs_job.id = jobs_trial.job_id"
            f" WHERE tuning_job_id = {self.id} AND jobs_job.ended_at IS NULL"
        )
        [row] = self.yard.query(unfinished)
        self.most = max(self.most, row["n"])
        return self.yard.query(
            f"SELECT id FROM jobs_tuningjob WHERE id = {self.id} AND ended_at IS NOT NULL"  # noqa: S608
        )

    def ran(self):
        """How often the program of each trial ran, over all hosts."""
        lines = [
            line
            for host in self.yard.fleet
            if host.path(f"{host.home}/{LEDGER}").exists()
            for line in host.read(f"{host.home}/{LEDGER}").split()
        ]
        return Counter(map(int, lines))


def drawn_by_rule(document):
    """What the pure function gives each trial, without anything that runs."""
    study, nothing = parse_study(document), StudyRows(())
    return {number: dict(suggest(study, nothing, number, SEED).parameters) for number in range(1, TRIALS + 1)}


@pytest.mark.exhaustive
def test_of_a_thousand_trials_fifty_at_once_each_is_one_job_that_ran_once(yard):
    yard.settle()
    study = LargeStudy(yard)
    wait_for(study.is_over, "the study to end", timeout=TIMEOUT_S, every=0.5, dump=yard.tail)
    found = study.over()
    numbers = list(range(1, TRIALS + 1))
    assert [int(number) for number, *_ in found] == numbers
    assert {state for _, state, *_ in found} == {"SUCCEEDED"}
    assert study.ran() == dict.fromkeys(numbers, 1)
    assert study.most == PARALLEL
    rule = drawn_by_rule(study.document["studySpec"])
    for number, _, [parameter], [metric] in found:
        assert {parameter["parameterId"]: parameter["value"]} == rule[int(number)]
        assert metric["value"] == parameter["value"]
    of_study = f"FROM jobs_trial WHERE tuning_job_id = {study.id}"
    [jobs] = yard.query(
        f"SELECT count(*) AS n FROM jobs_run WHERE job_id IN (SELECT job_id {of_study})"  # noqa: S608
    )
    [distinct] = yard.query(f"SELECT count(DISTINCT job_id) AS n {of_study}")
    assert jobs["n"] == distinct["n"] == TRIALS
    left = f"SELECT id {of_study} AND (ended_at IS NULL OR state <> 'SUCCEEDED')"
    assert yard.query(left) == []
    yard.check("after a study of a thousand trials")
