"""What people have on two machines before an upgrade: files, a study, a recording, logins, and jobs that run."""

from __future__ import annotations

import json

from console.presenters.hosts.host_logins import MAKE
from tests.flows.test_brought import SHOW, Storage, archive, with_code
from tests.flows.test_logins import OURS, THEIRS, login_of, submit
from tests.flows.test_recorded_shells import recording_of
from tests.flows.test_several_machines import Upload
from tests.harness.crawl import Visitor
from tests.harness.product import job_spec
from tests.harness.product.held_shell import HeldShell
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

# Below /tmp, as each project has a login of its own on one of the hosts, and so another home.
OVER = "/tmp/over-after-the-upgrade"  # noqa: S108
BEATS = f"until [ -e {OVER} ]; do echo beat; sleep 0.2; done"
# The first trials are over before the upgrade, the third runs through it, the last begins after it.
TRIALS = 4
DONE_BEFORE = 2
TRIAL = f"""import json, os, sys, time
x = float(sys.argv[-1].partition("=")[2])
with open(os.environ["TRAINYARD_METRICS"], "a") as file:
    file.write(json.dumps({{"step": 1, "loss": (x - 0.3) ** 2}}) + "\\n")
print("measured", flush=True)
while int(os.environ["CLOUD_ML_TRIAL_ID"]) > {DONE_BEFORE} and not os.path.exists("{OVER}"):
    time.sleep(0.1)
"""
STUDY = {
    "displayName": "study",
    "studySpec": {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}],
    },
    "maxTrialCount": TRIALS,
    "parallelTrialCount": 1,
    "trialJobSpec": job_spec(["python3", "-c", TRIAL])["jobSpec"],
}


class Kept:
    def __init__(self, first, second):
        self.first, self.second = first, second
        self.jobs, self.before = [], {}

    # before the upgrade

    def made(self):
        client = self.first.client
        self.browser = Visitor(self.first.url, "ada").log_in(PASSWORD)
        self.code = Storage(self.second.client).artifact(archive("print('brought', flush=True)", 1 << 20))
        self.with_logins()
        self.stored, self.begun = Upload(client, "stored"), Upload(self.second.client, "begun")
        self.stored.part(client, 0, len(self.stored.data))
        self.begun.part(self.second.client, 0, 1000)
        self.recorded()
        studies = client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
        self.study = client.call("POST", studies, json=STUDY).json()["name"]
        self.jobs.append(submit(self.first, "default", ["sh", "-c", BEATS]))
        for each, job in self.jobs:
            each.wait_for_log(job, "beat")
        wait_for(self.third_runs, "the third trial to run", 120, dump=self.first.tail)
        self.before = self.seen(self.first, client)
        return self

    def with_logins(self):
        """One host has a login for each of two projects, and runs a job under one of them. The other has some code."""
        host = self.first.fleet[0]
        host.run_inside("sh", "-c", MAKE.format(users=f"{OURS} {THEIRS}", key=self.first.key.strip()))
        logins = ("host", "logins", host.name, "--template", "train-{project}")
        self.first.commands(("host", "cordon", host.name))
        client = self.first.client
        client.wait(self.brings(), "SUCCEEDED")
        self.first.commands(("host", "uncordon", host.name), ("project", "add", "vision"), logins)
        up = "SELECT 1 FROM agents_host WHERE machine_id IS NOT NULL AND status = 'up'"
        wait_for(lambda: len(self.first.query(up)) == 2, "the logins to be up", dump=self.first.tail)
        other = self.first.fleet[1].name
        self.first.commands(("host", "cordon", other))
        member, job = submit(self.first, "vision", ["sh", "-c", BEATS])
        member.wait(job, "RUNNING")
        self.first.commands(("host", "uncordon", other))
        self.jobs.append((member, job))

    def brings(self):
        pool = with_code({"command": SHOW}, artifact=self.code)
        return self.first.submit({"displayName": "brings", "jobSpec": {"workerPoolSpecs": [pool]}})

    def recorded(self):
        """A shell that was typed into, and is over."""
        client = self.first.client
        self.job = self.first.submit(job_spec(["sh", "-c", BEATS], name="recorded", web_access=True))
        client.wait(self.job, "RUNNING")
        shell = HeldShell(client, self.first.runs(self.job)[0]["id"]).connect()
        shell.type(b"echo re''corded\n").seen(b"recorded\r\n")
        shell.type(b"exit\n").until(lambda each: each.over, "its end")
        self.shell = shell.key
        assert recording_of(client, self.job, self.shell)[0] == "WHOLE"

    def trials(self, client):
        return client.call("GET", f"{client.url}/v1/{self.study}", 60).json().get("trials", [])

    def third_runs(self):
        found = self.trials(self.first.client)
        return len(found) > DONE_BEFORE and found[DONE_BEFORE]["state"] == "ACTIVE"

    # after it

    def seen(self, machine, client):
        """What is the same before and after, at either machine."""
        state, (_, *events) = recording_of(client, self.job, self.shell)
        return {
            "trials": json.dumps(self.trials(client)[:DONE_BEFORE], sort_keys=True),
            "file": self.stored.read(client),
            "upload": self.begun.so_far(client),
            "recording": (state, events),
            "runs": {run["id"] for _, job in self.jobs for run in self.first.runs(job)},
            "logins": [login_of(self.first, job) for _, job in self.jobs],
            "page": self.browser_of(machine).get(f"/jobs/{self.job}/").status_code,
        }

    def browser_of(self, machine):
        """The person who has logged in before the upgrade, at this machine."""
        self.browser.url = machine.url
        return self.browser

    def is_there(self):
        assert (self.before["page"], len(self.before["runs"])) == (200, 2)
        assert self.before["logins"][0] == (THEIRS, self.first.fleet[0].name)
        for machine in (self.first, self.second):
            now = self.seen(machine, machine.client)
            changed = [name for name, value in now.items() if value != self.before[name]]
            assert not changed, f"after the upgrade other than before at {machine.url}: {changed}"
        assert self.begun.part(self.first.client, 1000, len(self.begun.data)).status_code == 200
        assert self.begun.read(self.second.client) == self.begun.data

    def goes_on(self):
        """Jobs that run are not started again, a job's code is not shipped again, and the study ends."""
        client = self.second.client
        for _, job in self.jobs:
            stored = self.log_stored(job)
            wait_for(lambda job=job, stored=stored: self.log_stored(job) > stored, "its log to grow")
        for host in self.first.fleet:
            host.write(OVER, "")
        for each, job in self.jobs:
            each.url = client.url
            each.wait(job, "SUCCEEDED")
            assert len(self.first.runs(job)) == 1
        wait_for(lambda: self.ended(client), "the study to end", 240, dump=self.first.tail)
        trials = self.trials(client)
        assert [each["state"] for each in trials] == ["SUCCEEDED"] * TRIALS
        assert json.dumps(trials[:DONE_BEFORE], sort_keys=True) == self.before["trials"]
        self.first.command("host", "cordon", self.first.fleet[0].name)
        client.wait(self.brings(), "SUCCEEDED")
        asked = self.first.query(
            f"SELECT asked FROM jobs_preparation WHERE CAST(what AS text) LIKE '%{self.code}%'"
        )
        assert [row["asked"] for row in asked] == [1], "the code was there"

    def log_stored(self, job):
        return self.first.runs(job)[0]["log_stored"]

    def ended(self, client):
        return (
            client.call("GET", f"{client.url}/v1/{self.study}", 60).json()["state"] == "JOB_STATE_SUCCEEDED"
        )
