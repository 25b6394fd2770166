"""A study over real hosts while something dies under each of its trials: the same study as when nothing dies."""

from __future__ import annotations

import itertools
import signal

import pytest

from tests.flows.test_processes_die import command_on
from tests.flows.test_services_die import owners
from tests.flows.test_tuning import PROGRAM, Study
from tests.harness.product import job_spec
from tests.harness.product.product import where_is
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces]

# The program has reported, and ends when its host has the file of its trial.
HELD = (
    PROGRAM
    + """
place = os.path.expanduser("~/" + sys.argv[1] + os.environ["CLOUD_ML_TRIAL_ID"])
while not os.path.exists(place):
    time.sleep(0.05)
"""
)


@pytest.fixture(scope="module")
def shape():
    return "apart"


class HeldStudy(Study):
    """`mark`: the beginning of the names of the files that let its trials end."""

    def __init__(self, yard, mark, trials):
        self.mark, self.trials = mark, trials
        self.command = ("python3", "-c", HELD, mark)
        super().__init__(yard)

    def let_end(self, *trials):
        for host, trial in itertools.product(self.yard.fleet, trials):
            host.write(f"{host.home}/{self.mark}{trial}", "")

    def ends(self):
        """By trial: how those ended of which the state of their jobs does not say it."""
        rows = f"SELECT number, ending FROM jobs_trial WHERE tuning_job_id = {self.id} AND ending <> ''"  # noqa: S608
        return {row["number"]: row["ending"] for row in self.yard.query(rows)}

    def runs(self, trial):
        """The host and the run of this trial, once its program is there."""
        job = f"SELECT job_id FROM jobs_trial WHERE tuning_job_id = {self.id} AND number = {trial}"  # noqa: S608

        def found():
            for row in self.yard.query(job):
                runs = [run["id"] for run in self.yard.runs(row["job_id"])] if row["job_id"] else []
                for host, run in itertools.product(self.yard.fleet, runs):
                    if any("TRAINYARD_METRICS" in command for _, command in host.processes(run)):
                        return host, run
            return None

        return wait_for(found, f"trial {trial} to run", timeout=120, dump=self.yard.tail)


def killed(role):
    def act(yard, host, run):
        yard.processes.wait_for_new(role, yard.processes.kill(role))
        yard.replace_dead_extras()

    return act


def a_dispatcher_suspended_past_its_lease(yard, host, run):
    def holders(number):
        return lambda: len(set(owners(yard).values())) == number

    wait_for(holders(2), "the hosts to be shared by two dispatchers", timeout=120, dump=yard.tail)
    asleep = yard.processes.of("dispatcher")[0]
    yard.processes.pause_one(asleep)
    wait_for(holders(1), "one dispatcher to hold every lease", timeout=120, dump=yard.tail)
    yard.processes.resume(asleep)


def everything_killed(yard, host, run):
    """With `up`, which starts the others."""
    yard.kill()
    yard.start()


def services_killed(yard, host, run):
    for service in (yard.redis, yard.postgres):
        service.kill()
        service.start()


def killed_on_host(title, most=None):
    """What the runner has there under this title. `most`: so many processes of it."""

    def act(yard, host, run):
        found = [pid for pid in host.pids() if title.format(run) in command_on(host, pid)][:most]
        assert found, f"no {title} of {run}"
        host.run_inside("kill", f"-{signal.SIGKILL.value}", *map(str, found))

    return act


def rebooted(yard, host, run):
    host.reboot(hard=True)


def drained(yard, host, run):
    """Its replica goes on at another host."""
    yard.command("host", "drain", host.name, "--message", "new disk")
    wait_for(lambda: not host.processes(run), "the run to leave the host", timeout=120, dump=yard.tail)
    yard.command("host", "uncordon", host.name)


def cut_off(yard, host, run):
    """Nobody is told that its run ended, so it goes on there."""
    host.cut()
    try:
        yard.wait_for_hosts("unreachable", host.name)
    finally:
        host.restore()
    yard.wait_for_hosts("up", host.name)


def declared_gone(yard, host, run):
    """Its replica goes on at another host, and the old run ends when the lost one is back."""
    job = run.partition("-")[0]
    host.cut()
    try:
        yard.wait_for_hosts("unreachable", host.name)
        yard.command("host", "declare-gone", host.name, "--confirm", host.name)

        def elsewhere():
            return any(
                each.processes(found["id"])
                for found in yard.runs(job)
                for each in yard.fleet
                if found["id"] != run and each is not host
            )

        wait_for(elsewhere, "the replica to run elsewhere", timeout=120, dump=yard.tail)
    finally:
        host.restore()
    yard.wait_for_hosts("up", host.name)
    wait_for(lambda: not host.processes(run), "its former self to end", timeout=120, dump=yard.tail)
    gone = (
        "SELECT m.gone_at FROM jobs_hostmaintenance m JOIN agents_host h ON h.id = m.host_id"
        f" WHERE h.name = '{host.name}'"  # noqa: S608
    )
    wait_for(lambda: yard.query(gone)[0]["gone_at"] is None, "the host to be in service", dump=yard.tail)


# One under each trial.
FAULTS = (
    a_dispatcher_suspended_past_its_lease,
    *(killed(role) for role in ("web", "worker", "dispatcher", "beat", "watchdog")),
    everything_killed,
    services_killed,
    killed_on_host(" serve"),
    killed_on_host("trainyard-keeper {}", most=1),
    killed_on_host("trainyard-keeper {}"),
    rebooted,
    drained,
    cut_off,
    declared_gone,
)


def test_a_study_is_the_same_whatever_dies_under_its_trials(yard):
    """Each trial has reported, and its program runs. That it runs once more, where its host could not go on with it, is
    the same trial."""
    yard.settle()
    numbers = range(1, len(FAULTS) + 1)
    undisturbed = HeldStudy(yard, "undisturbed-", len(FAULTS))
    undisturbed.let_end(*numbers)
    expected = undisturbed.over()
    disturbed = HeldStudy(yard, "disturbed-", len(FAULTS))
    for number, fault in zip(numbers, FAULTS, strict=True):
        fault(yard, *disturbed.runs(number))
        disturbed.let_end(number)
    assert disturbed.over() == expected
    assert {state for _, state, *_ in expected} == {"SUCCEEDED"}
    yard.check("after a study with a fault under each trial")


class ImpatientStudy(HeldStudy):
    """The job of a trial is not run again, so that one host that cannot start it fails it."""

    def job_of_trials(self):
        return job_spec(list(self.command), scheduling={"disableRetries": True})


def test_a_trial_that_a_host_cannot_start_is_tried_again_by_another_with_its_parameters(yard):
    """It is the first that ends: a program that fails so would end the study."""
    yard.settle()
    full, *others = yard.fleet
    for host in others:
        yard.command("host", "cordon", host.name, "--message", "new rack")
    full.fill_disk()
    try:
        study = ImpatientStudy(yard, "impatient-", 2)
        wait_for(lambda: study.ends() == {1: "HOSTS"}, "trial 1 to be lost", timeout=200, dump=yard.tail)
        for host in others:
            yard.command("host", "uncordon", host.name)
        study.runs(2)
    finally:
        full.free_disk()
    yard.command("host", "add", *where_is(full), "--accept-key", full.fingerprint())
    yard.wait_for_hosts("up", full.name)
    # The files are for all that its disk had no room for them.
    study.let_end(2, 3)
    found = wait_for(study.ended, "the study to end", timeout=400, dump=yard.tail)
    assert found["state"] == "JOB_STATE_SUCCEEDED", found.get("error")
    lost, again, third = found["trials"]
    assert [each["state"] for each in found["trials"]] == ["INFEASIBLE", "SUCCEEDED", "SUCCEEDED"]
    assert (lost["trainyard"], "trainyard" in again) == ({"ending": "HOSTS"}, False)
    assert lost["infeasibleReason"].startswith(
        "Hosts failed, not its program. workerpool0-0 could not be started on"
    )
    assert lost["parameters"] == again["parameters"] != third["parameters"]
    yard.check("after a study on a host that could start nothing")
