"""Recordings of shells over faults: what a recording holds is what the shell has shown, each byte once."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from websockets.exceptions import WebSocketException

from tests.flows.test_held_shells import cut
from tests.harness.product import job_spec
from tests.harness.product.held_shell import HeldShell
from tests.harness.wait_and_processes import wait_for

SECRET = "a-secret-of-the-job-77"
QUIET = b"stty -echo; PS1=; echo rea''dy\n"
# A number with each line: what is missing or doubled is seen.
PRINT = b"for i in $(seq %d %d); do echo n-$i-$TOKEN; done; echo en''d-%d\n"


@pytest.fixture
def job(yard):
    document = job_spec(["replica", "--until", "~/recorded-is-over"], name="recorded", web_access=True)
    container = document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    container["env"].append({"name": "TOKEN", "value": SECRET, "secret": True})
    job_id = yard.submit(document)
    yard.client.wait(job_id, "RUNNING")
    yield job_id
    yard.client.cancel(job_id)
    yard.client.wait(job_id, "CANCELLED")


def kill(name, *marks):
    def fault(yard, host):
        old = yard.processes.kill(name)
        yard.processes.wait_for_new(name, old)

    return pytest.param(fault, id=f"kill_{name}", marks=marks)


def cut_link(yard, host):
    cut(yard, host, None)


def recording_of(client, job, key):
    """(its state, the recording), once all of it is here."""

    def complete():
        listed = client.call("GET", f"{client.url}/api/v1/jobs/{job}/shells", patience=60).json()["shells"]
        found = [each for each in listed if key in each.get("recording", "")]
        return found and found[0]["recordingState"] != "COMING" and found[0]

    row = wait_for(complete, "the recording to be complete", 60)
    data = client.call("GET", row["recording"], patience=60).content
    return row["recordingState"], [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize(
    "fault",
    [
        kill("web"),
        kill("dispatcher", pytest.mark.slow),
        pytest.param(cut_link, marks=[pytest.mark.slow, pytest.mark.needs_namespaces]),
    ],
)
def test_a_recording_is_what_the_shell_showed_over(yard, job, client, fault):
    [run] = yard.runs(job)
    [row] = yard.query(f"SELECT name FROM agents_host WHERE id = {run['host_id']}")
    host = next(host for host in yard.fleet if host.name == row["name"])
    shell = HeldShell(client, run["id"]).connect()
    shell.type(QUIET).seen(b"ready\r\n")
    for number in range(3):
        shell.type(PRINT % (number * 1000, number * 1000 + 999, number)).seen(b"end-%d\r\n" % number)
        fault(yard, host)
    shell.type(b"exit 7\n").until(lambda each: each.over, "its end")
    state, (header, *events) = recording_of(client, job, shell.key)
    assert state == "WHOLE" and (header["version"], header["width"], header["height"]) == (2, 80, 24)
    shown = "".join(text for _, kind, text in events if kind == "o")
    assert shown == shell.output.decode().replace(SECRET, "*" * len(SECRET)) and "*" * len(SECRET) in shown
    assert events[-1][1:] == ["x", "7"]
    assert [line.split("-")[1] for line in shown.splitlines() if line.startswith("n-")] == [
        str(number) for number in range(3000)
    ]


@pytest.mark.slow
def test_a_recording_outlives_its_job_and_the_run_on_the_host(yard, client):
    job = yard.submit(job_spec(["replica", "--until", "~/never"], name="outlived", web_access=True))
    yard.client.wait(job, "RUNNING")
    [run] = yard.runs(job)
    shell = HeldShell(client, run["id"]).connect()
    shell.type(b"seq 1 30000; echo la''st\n").seen(b"last\r\n")
    shell.drop()
    yard.client.cancel(job)
    yard.client.wait(job, "CANCELLED")
    state, (_, *events) = recording_of(client, job, shell.key)
    assert state == "WHOLE" and "29999\r\n30000\r\nlast" in "".join(
        text for _, kind, text in events if kind == "o"
    )
    wait_for(lambda: yard.runs(job)[0]["forgotten_at"], "the host to forget the run", 60)
    rows = yard.query(f"SELECT what FROM jobs_auditentry WHERE subject LIKE '{job}/%%' ORDER BY id")
    told = [row["what"] for row in rows]
    # The recording may be here before a web process notes that the shell is over.
    told.remove("shell.close")
    assert told == ["shell.open", "shell.recording", "shell.replay"]


def reason(client, shell):
    """Why the shell opens no more; empty while the host cannot be asked, and while it is open."""
    with suppress(OSError, TimeoutError, WebSocketException):
        socket = client.socket(shell.path, open_timeout=5)
        socket.send(json.dumps({"resize": [80, 24], "client": shell.name, "from": None}))
        while True:
            message = json.loads(socket.recv(timeout=10))
            if "closed" in message or "ready" in message:
                socket.close()
                return message.get("closed", "")
    return ""


@pytest.mark.needs_namespaces
@pytest.mark.slow
def test_a_host_that_reboots_ends_the_shell_with_that_reason(yard, client):
    """What came before the reboot has come once; the page is told why there is no more, and offers another shell."""
    job = yard.submit(job_spec(["replica", "--until", "~/never"], name="rebooted", web_access=True))
    yard.client.wait(job, "RUNNING")
    [run] = yard.runs(job)
    [row] = yard.query(f"SELECT name FROM agents_host WHERE id = {run['host_id']}")
    host = next(host for host in yard.fleet if host.name == row["name"])
    shell = HeldShell(client, run["id"]).connect()
    shell.type(QUIET).seen(b"ready\r\n")
    shell.type(b"for i in $(seq 0 1999); do echo n-$i; done; echo en''d\n").seen(b"end\r\n")
    # What was shown in the last tenth of a second is not written yet, and would go with the host.
    written = f"grep -l n-1999 {host.home}/.trainyard/*/runs/*/shells/{shell.key}.cast"
    wait_for(lambda: host.run_inside("sh", "-c", written, check=False).returncode == 0, "it to be written")
    host.reboot()
    shell.drop()
    wait_for(lambda: "rebooted" in reason(client, shell), "the reason", 60)
    assert reason(client, shell) == "The host was rebooted, and the shell ended with it."
    numbers = [line.split(b"-")[1] for line in shell.output.splitlines() if line.startswith(b"n-")]
    assert numbers == [b"%d" % number for number in range(2000)]
    state, (_, *events) = recording_of(client, job, shell.key)
    shown = "".join(text for _, kind, text in events if kind == "o")
    assert state in ("CUT", "WHOLE") and "n-1999" in shown
    yard.client.cancel(job, patience=60)
    yard.client.wait(job, "CANCELLED", "FAILED")
