"""Paths through the whole product, step by step: one job, one crash, one keystroke, one move in the queue."""

from __future__ import annotations

import hashlib
import json
import re
import signal

import pytest
import requests
from websockets.exceptions import ConnectionClosed

from tests.flows import occupancy
from tests.flows.running_jobs import LongJob, replica_process
from tests.harness.product import job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

# The files before this one have left a product of the shape "apart" (tests/conftest.py). Most other flows and all tests
# of behaviour have "embedded".
SHAPES = ["apart", pytest.param("embedded", marks=pytest.mark.exhaustive)]
pytestmark = pytest.mark.parametrize("shape", SHAPES, scope="module")
# What a viewer of a shell that acknowledges nothing is sent at most.
UNACKNOWLEDGED = 256 * 1024
NEW, QUEUE = "/jobs/new?as=json", "/jobs/queue"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Browser:
    """Sends forms as a browser does: cookies, the page's own token, redirects."""

    def __init__(self, url):
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def get(self, path):
        answer = self.session.get(self.url + path, timeout=120)
        assert answer.status_code == 200, answer.text[:2000]
        return answer.text

    def send(self, page, path, **fields):
        token = TOKEN.search(self.get(page))[1]
        headers = {"Referer": self.url + page, "Origin": self.url}
        fields["csrfmiddlewaretoken"] = token
        answer = self.session.post(self.url + path, data=fields, headers=headers, timeout=120)
        assert answer.status_code == 200, answer.text[:2000]
        return answer


@pytest.fixture
def browser(yard):
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    return browser


def causes(yard, job_id):
    rows = yard.query(
        "SELECT to_state, cause, actor FROM jobs_transition"
        f" WHERE job_id = {job_id} AND subject = 'job' ORDER BY id"
    )
    assert all(row["cause"] and row["actor"] for row in rows), rows
    return [row["to_state"] for row in rows]


def test_a_job_from_the_form_to_the_last_byte(yard, client, browser):
    """A job with two pools on two hosts: the viewer sees what was printed, and every step has left its row."""
    commands = (["replica", "--seconds", "1.5"], ["replica", "--seconds", "60"])
    document = json.dumps(job_spec(*[{"command": command, "gpus": 5} for command in commands], name="walk a"))
    fields = {**json_form(browser, document), "mode": "json", "action": "submit"}
    page = browser.send(NEW, NEW, **fields)
    job_id = int(re.search(r"/jobs/(\d+)/", page.url)[1])
    yard.accepted.append(job_id)
    with client.log_socket(job_id) as viewer:
        viewer.read_until(lambda seen: b"line 0 at" in seen.text(), "the first line")
        assert client.state(job_id) in ("PENDING", "RUNNING")
        viewer.read_until(lambda seen: b"done after" in seen.text(), "the last line")
        viewer.read_until(lambda seen: seen.headers[-1].get("matches"), "the proof that the log is whole")
    client.wait(job_id, "SUCCEEDED")
    yard.check()
    assert viewer.text() == client.log(job_id)
    assert causes(yard, job_id) == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
    runs = yard.runs(job_id)
    assert len({run["host_id"] for run in runs}) == 2 and [len(run["gpu_uuids"]) for run in runs] == [5, 5]
    digest = hashlib.sha256(viewer.text()).hexdigest()
    digest = f"sha256:{hashlib.sha256(viewer.text()).hexdigest()}"
    assert runs[0]["log_digest_here"] == runs[0]["log_digest_host"] == digest
    assert viewer.headers[-1]["complete"] and viewer.headers[-1]["digest_here"] == digest


def test_machine_types_and_quotas_that_an_admin_sets_hold_for_the_next_job(yard, client):
    """Machine types and quotas on both databases: set, changed, obeyed, and named in the reason."""
    for cpus in (1, 0.5):
        client.call("PUT", f"{client.url}/api/v1/machineTypes/tiny", json={"cpus": cpus, "memoryMb": 256})
    small = yard.submit(job_spec({"command": ["true"], "machine": "tiny"}, name="tiny"))
    client.wait(small, "SUCCEEDED")
    assert [run["cpus"] for run in yard.runs(small)] == [0.5]
    quota = f"{client.url}/api/v1/projects/default/quotas/NVIDIA_H100_80GB"
    client.call("PUT", quota, json={"limit": 2})
    try:
        holder = yard.submit(job_spec({"command": ["replica", "--seconds", "300"], "gpus": 2}, name="holder"))
        client.wait(holder, "RUNNING")
        waiter = yard.submit(job_spec({"command": ["true"], "gpus": 1}, name="waiter"))
        wait_for(lambda: "uses 2 of 2 NVIDIA_H100_80GB" in told(client, waiter), "the reason in words")
        assert client.state(waiter) == "QUEUED"
        client.cancel(holder)
        client.wait(waiter, "SUCCEEDED")
    finally:
        client.call("PUT", quota, json={"limit": None})


def test_a_job_that_is_moved_to_the_front_gets_the_next_free_gpu(yard, client, browser):
    """Three jobs wait for one GPU. An admin sees what the move would do, confirms it, and it happens. The occupancy
    tells what ran where."""
    others = [
        LongJob(yard, replicas=2, gpus=8, name="two hosts"),
        LongJob(yard, gpus=7, name="most of the third"),
    ]
    # With limits, it is known when each would start.
    before = LongJob(yard, gpus=1, name="ends first", timeout_s=3600)
    for job in (*others, before):
        job.running()
    first, second, third = (LongJob(yard, gpus=1, name=f"waits {number}", timeout_s=3600) for number in "123")
    ids = [first.id, second.id, third.id]
    wait_for(lambda: queue(client) == ids, "the three to wait", dump=yard.tail)
    preview = browser.send(QUEUE, f"{QUEUE}/move", one=f"top-{third.id}").text
    assert re.findall(r"(\d) → (\d)", preview) == [("3", "1"), ("1", "2"), ("2", "3")]
    assert queue(client) == ids, "a preview moves nothing"
    stamp = re.search(r'name="stamp" value="([^"]+)"', preview)[1]
    browser.send(QUEUE, f"{QUEUE}/move", job=third.id, act="top", stamp=stamp)
    assert queue(client) == [third.id, first.id, second.id]
    wait_for(lambda: "ada placed 1 job ahead of it." in told(client, first.id), "the reason to name her")
    [gpu] = before.run()["gpu_uuids"]
    host = before.host()
    before.succeeded()
    for job, waiting in ((third, [first.id, second.id]), (first, [second.id]), (second, [])):
        job.running()
        assert (job.run()["gpu_uuids"], job.host()) == ([gpu], host)
        assert {client.state(each) for each in waiting} <= {"QUEUED"}
        jobs = {*ids, before.id}
        wait_for(lambda jobs=jobs: occupancy.told(browser, jobs) == occupancy.held(yard, jobs), "the CSV")
        job.succeeded()
    for job in others:
        job.succeeded()
    yard.check()
    jobs = {*ids, before.id, *(job.id for job in others)}
    rows = occupancy.held(yard, jobs)
    assert len(rows) == 7 and None not in {until for *_, until in rows}
    assert occupancy.told(browser, jobs) == rows
    for each in yard.fleet:
        assert occupancy.bars(browser, each.name) == occupancy.runs_by_gpu(yard, each.name)


def queue(client):
    """Return the ids of the jobs that wait, in their order."""
    return [int(row["id"]) for row in client.call("GET", f"{client.url}/api/v1/queue").json()["jobs"]]


def told(client, job_id):
    return client.call("GET", f"{client.url}/api/v1/jobs/{job_id}").text


def json_form(browser, document):
    """Return the fields of the JSON form as the page has them, with this document as the text."""
    html = browser.get(NEW)
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html))
    fields.pop("csrfmiddlewaretoken", None)
    name = re.search(r'<textarea[^>]* name="([^"]+)"', html)[1]
    selects = re.findall(r'<select[^>]* name="([^"]+)"', html)
    return {**fields, **dict.fromkeys(selects, "default"), name: document}


def test_a_crash_and_the_restart_that_follows(yard, client, hosts):
    """The killed replica comes back on the same host under its name; its sibling and the page go on."""
    pools = (["replica", "--seconds", "60"], ["replica", "--seconds", "60"])
    job_id = yard.submit(job_spec(*pools, name="walk b"))
    client.wait(job_id, "RUNNING")
    for replica in ("workerpool0-0", "workerpool1-0"):
        client.wait_for_log(job_id, "line 0 at", replica)
    victim = next(run for run in yard.runs(job_id) if "workerpool1-0" in run["id"])
    host = wait_for(
        lambda: next(filter(lambda each: replica_process(each, victim["id"]), hosts), None), "the replica"
    )
    pid = replica_process(host, victim["id"])
    with client.socket(f"/ws/jobs/{job_id}") as page:
        before = json.loads(page.recv(timeout=120))
        host.run_inside("kill", f"-{signal.SIGKILL.value}", str(pid))
        wait_for(lambda: "SIGKILL" in json.loads(page.recv(timeout=120))["html"], "the page to say SIGKILL")
        assert "SIGKILL" not in before["html"]
    again = wait_for(lambda: running(yard, job_id, "workerpool1-0", after=victim["id"]), "the second run")
    job_log = client.log(job_id, "workerpool1-0", again["id"])
    wait_for(
        lambda: len(client.log(job_id, "workerpool1-0", again["id"])) > len(job_log),
        "the second run to print",
    )
    assert again["host_id"] == victim["host_id"] and again["number"] == 1
    assert client.state(job_id) == "RUNNING"
    client.cancel(job_id)
    client.wait(job_id, "CANCELLED")
    yard.check()
    starts = [line["run"] for line in yard.ledger(job_id) if line["event"] == "start"]
    assert len(starts) == 3 and f"{job_id}-workerpool0-0-a1-r0" in starts


def running(yard, job_id, replica, after):
    found = [run for run in yard.runs(job_id) if f"-{replica}-" in run["id"] and run["id"] != after]
    return next((run for run in found if run["phase"] == "running"), None)


@pytest.mark.needs_namespaces  # an sshd of an ordinary user gives no terminal to anybody
def test_a_keystroke_and_its_echo(yard, client):
    """A terminal in the replica's own environment: bounded when its viewer does not read, closed when the job ends."""
    job_id = yard.submit(job_spec(["replica", "--seconds", "90"], name="walk c", web_access=True))
    client.wait(job_id, "RUNNING")
    [run] = yard.runs(job_id)
    assert list(client.job(job_id)["webAccessUris"]) == ["workerpool0-0"]
    with client.shell(run["id"], 91, 31) as shell:
        shell.wait_until_open()
        shell.say("echo run=$TRAINYARD_RUN size=$(stty size)", f"run={run['id']} size=31 91")
        shell.say("pwd", f"/work/{job_id}-workerpool0-0-a1")
        shell.type("yes\n")
        assert 64 * 1024 < shell.take_lazily() <= UNACKNOWLEDGED
        shell.type("\x03")
        shell.say("echo the end is $((40+2))", "the end is 42")
        client.cancel(job_id)
        with pytest.raises(ConnectionClosed):
            while True:
                shell.receive(60)
    client.wait(job_id, "CANCELLED")
    [session] = wait_for(
        lambda: [row for row in sessions(yard, run["id"]) if row["closed_at"]],
        "the shell's record to be closed",
    )
    assert session["user_name"] == "ada" and session["close_reason"]
    yard.check()


def sessions(yard, run_id):
    return yard.query(f"SELECT * FROM jobs_shellsession WHERE run_id = '{run_id}'")
