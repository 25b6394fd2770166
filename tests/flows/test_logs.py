"""Logs of every kind arrive whole: binary, endless lines, progress bars, floods, a console with a full disk."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from google.oauth2.credentials import Credentials

from tests.flows.running_jobs import LongJob
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL, Refused
from tests.harness.wait_and_processes import wait_for

ENDLESS = "import sys\nfor n in range(300): sys.stdout.write('%08d' % n * 8192)"
PROGRESS = "import sys\nfor n in range(200000): sys.stdout.write('\\r%6d/200000 it/s' % n)\nprint()"


def python(source):
    return ["python3", "-c", source]


def test_bytes_of_every_kind_are_kept_exactly(yard, client):
    """Failure modes 27, 28 and 29: random bytes, 19 MB without a newline, a bar of 200,000 steps."""
    binary = yard.submit(job_spec(["replica", "--binary", "8", "--seconds", "0.1"], name="binary"))
    endless = yard.submit(job_spec(python(ENDLESS), name="endless"))
    progress = yard.submit(job_spec(python(PROGRESS), name="progress"))
    for job_id in (binary, endless, progress):
        client.wait(job_id, "SUCCEEDED")
    yard.check()
    wanted = b"".join(b"%08d" % n * 8192 for n in range(300))
    assert client.log(endless) == wanted
    assert client.log(endless, Range="bytes=9000000-9000015") == wanted[9000000:9000016]
    assert client.log(progress) == b"".join(b"\r%6d/200000 it/s" % n for n in range(200000)) + b"\n"
    with client.log_socket(endless, tail=4096) as viewer:
        viewer.read_until(lambda seen: len(seen.text()) == 4096, "the end of an endless line at once")
    assert viewer.text() == wanted[-4096:]
    [run] = yard.runs(endless)
    assert run["log_digest_here"] == run["log_digest_host"]


@pytest.mark.slow
def test_a_flood_through_a_small_disk(yard, client):
    """Failure mode 26: a log larger than the host's disk arrives, byte for byte or with a gap that says so."""
    assert yard.fleet.disk_mb < 300
    job_id = yard.submit(job_spec(["replica", "--mb", "400", "--seconds", "0.2"], name="flood"))
    client.wait(job_id, "SUCCEEDED", timeout=240)
    web = yard.processes.of("web")[0]
    yard.check()
    [run] = yard.runs(job_id)
    gaps = yard.query(f"SELECT start, \"end\" FROM jobs_loggap WHERE run_id = '{run['id']}'")
    assert run["log_stored"] == 400_000_000 + tail_size(yard, job_id) or gaps
    assert memory_mb(web) < 600


def test_googles_logging_library_follows_a_job_with_the_requests_of_stream_logs(yard, client):
    """Two replicas print while it polls: each line comes once, in the order of the times, and none is lost."""
    library = importlib.import_module("google.cloud.logging")
    source = "import time\nfor n in range(300): print('line', n, flush=True); time.sleep(0.1)"
    job_id = yard.submit(
        job_spec(python(source), {"command": python(source), "replicas": 2}, name="followed")
    )
    logs = library.Client(
        project="default",
        credentials=Credentials(token=client.token),
        client_options={"api_endpoint": yard.url},
        _use_grpc=False,
    )
    stamp, insert_id, got, over = "1970-01-01T01:00:00.000000Z", "", [], False
    while not over:
        over = client.state(job_id) in TERMINAL
        if over:
            # As gcloud does, the last seconds are asked for when they are over.
            yard.check()
        lower = f'((timestamp="{stamp}" AND insertId>"{insert_id}") OR timestamp>"{stamp}")'
        # gcloud takes 5 seconds for what is on its way; a busy machine may need more.
        until = (datetime.now(UTC) - timedelta(seconds=0 if over else 20)).isoformat()
        text = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}" AND {lower} AND timestamp<"{until}"'
        for entry in logs.list_entries(filter_=text, order_by="timestamp asc", page_size=1000):
            stamp, insert_id = entry.timestamp.isoformat(timespec="microseconds"), entry.insert_id
            got.append((entry.resource.labels["task_name"], entry.payload))
        time.sleep(0.5)
    lines = [f"line {number}" for number in range(300)]
    for task in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        own = [line for name, line in got if name == task]
        # The job ends with its primary, so the last lines of the others may not have been printed.
        assert own == lines[: len(own)] and len(own) > 200, task
    assert [line for name, line in got if name == "workerpool0-0"] == lines


def tail_size(yard, job_id):
    return [line["out"] for line in yard.ledger(job_id) if line["event"] == "end"][0] - 400_000_000


def memory_mb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


@pytest.mark.needs_namespaces
@pytest.mark.slow
def test_the_console_runs_out_of_disk(yard, client):
    """Failure mode 25: submissions are refused before a row exists, logs stay on the host and are fetched later."""
    job = LongJob(yard, name="console full", options=["--mb", "1"]).running()
    job.grows()
    yard.fill_disk(leave_kb=5000)
    try:
        with pytest.raises(Refused) as refused:
            client.submit(job_spec(["true"], name="no room"))
        assert refused.value.status == 503
        assert client.state(job.id) == "RUNNING"
    finally:
        yard.free_disk()
    job.grows(what="the log to go on when there is room again")
    job.succeeded()
    yard.check()
    assert yard.query("SELECT id FROM jobs_job WHERE display_name = 'no room'") == []


@pytest.mark.slow
def test_a_project_whose_logs_are_over_their_limit_loses_none(yard, client):
    """A running job prints beyond the limit: storing stops at a byte that is told, the host keeps the rest, and it is
    stored when there is room again, also after the job has ended."""
    job = LongJob(yard, name="over the limit", options=["--mb", "1"]).running()
    job.grows()
    quotas = f"{yard.url}/api/v1/projects/default/quotas"
    used = client.call("GET", quotas).json()["logGb"]["used"]
    client.call("PUT", f"{quotas}/logGb", json={"limit": used / 2})

    def held():
        before = job.run()["log_stored"]
        time.sleep(2)
        return before == job.run()["log_stored"]

    try:
        wait_for(held, "storing to stop", dump=yard.tail)
        byte = job.run()["log_stored"]
        assert "Nothing more of them is stored" in client.call("GET", quotas).json()["logGb"]["warning"]
        with client.log_socket(job.id, tail=10) as viewer:
            viewer.read_until(lambda seen: any(each.get("held") for each in seen.headers), "the reason")
        [reason] = {each["held"] for each in viewer.headers if each.get("held")}
        assert reason.startswith(f"Storing stopped at byte {byte}: the logs of project default")
        with pytest.raises(Refused) as refused:
            client.submit(job_spec(["true"], name="no room for logs"))
        assert refused.value.status == 429
        assert client.state(job.id) == "RUNNING"
        job.succeeded()
        assert job.run()["log_complete_at"] is None and job.run()["forgotten_at"] is None
    finally:
        client.call("DELETE", f"{quotas}/logGb")
    wait_for(lambda: job.run()["log_complete_at"], "the rest of the log", dump=yard.tail)
    yard.check()
    assert job.run()["log_stored"] > byte
    assert yard.query("SELECT id FROM jobs_job WHERE display_name = 'no room for logs'") == []


@pytest.mark.slow
def test_a_viewer_that_never_reads_slows_nobody(yard, client):
    """The viewer gets what the window allows, and the others see every byte."""
    job = LongJob(yard, name="lazy viewer", options=["--mb", "6"]).running()
    lazy = client.socket(f"/ws/jobs/{job.id}/log/workerpool0-0")
    try:
        lazy.send(json.dumps({"from": 0}))
        with client.log_socket(job.id) as viewer:
            viewer.read_until(lambda seen: len(seen.text()) > 6_000_000, "six megabytes beside a lazy viewer")
            job.succeeded()
            viewer.read_until(lambda seen: seen.text().endswith(b" lines\n"), "the last line")
        received = 0
        try:
            while True:
                message = lazy.recv(timeout=1)
                received += len(message) if isinstance(message, bytes) else 0
        except TimeoutError:
            pass
        assert 0 < received <= 256 * 1024
    finally:
        lazy.close()
    yard.check()
    assert hashlib.sha256(viewer.text()).digest() == hashlib.sha256(client.log(job.id)).digest()


def test_jumps_to_the_end_and_to_a_time(yard, client):
    """A jump begins at the requested place, whatever is in the log before it."""
    job = LongJob(yard, name="jumps", options=["--every", "0.02"]).running()
    client.wait_for_log(job.id, "line 30 ")
    job.succeeded()
    yard.settle()
    whole = client.log(job.id)
    moment = float(whole.split(b"line 20 at ")[1].split(b"\n")[0])
    with client.log_socket(job.id, at=moment) as viewer:
        viewer.read_until(lambda seen: seen.text().endswith(b" lines\n"), "the end after a jump to a time")
    assert whole.endswith(viewer.text()) and len(viewer.text()) < len(whole)
    assert b"line 25 at" in viewer.text()
    yard.check()
