"""Secrets of users in the whole product: the program gets them, and no other place of the product has them."""

from __future__ import annotations

import hashlib
import uuid

import pytest

from tests.harness import leaks
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

# Prints a digest of each value, waits for a file, then prints the values.
PROGRAM = """
import hashlib, os, pathlib, sys, time
names = ("INLINE", "PROJECT", "PERSON")
for name in names:
    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest(), flush=True)
while not pathlib.Path(sys.argv[1]).expanduser().exists():
    time.sleep(0.1)
for name in names:
    print("the value of", name, "is", os.environ[name], flush=True)
"""


@pytest.fixture(scope="module", params=[pytest.param("apart", marks=pytest.mark.slow), "embedded"])
def shape(request):
    return request.param


def digest(value):
    return hashlib.sha256(value.encode()).hexdigest()


def document(canaries, marker):
    body = job_spec(["python3", "-c", PROGRAM, marker], web_access=True, name="with secrets")
    body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = [
        {"name": "INLINE", "value": canaries["inline"], "secret": True},
        {"name": "PROJECT", "valueFrom": {"secret": "OF_PROJECT", "of": "project"}},
        {"name": "PERSON", "valueFrom": {"secret": "OF_PERSON"}},
    ]
    return body


def test_a_secret_reaches_the_program_and_nothing_else(yard, client):
    canaries = {name: leaks.canary(name) for name in ("inline", "project", "person")}
    marker = f"secrets-go-{uuid.uuid4().hex[:8]}"
    with leaks.BrokerWatch(yard) as broker:
        api = f"{yard.url}/api/v1"
        answers = [
            client.call(
                "PUT", f"{api}/projects/default/secrets/OF_PROJECT", json={"value": canaries["project"]}
            ),
            client.call("PUT", f"{api}/secrets/OF_PERSON", json={"value": canaries["person"]}),
        ]
        job = yard.submit(document(canaries, f"~/{marker}"))
        client.wait(job, "RUNNING")
        for name, value in canaries.items():
            client.wait_for_log(job, f"{name.upper()} {digest(value)}")
        hits = leaks.found(leaks.places_of(yard), canaries)
        assert hits == [], "while the job runs"
        [run] = yard.runs(job)
        held = leaks.on_hosts(yard, canaries)
        assert held and {place.rpartition("/")[2] for _, place in held} == {"order.json"}, held
        pages = collect(yard, client, job, run["id"])
        for host in yard.fleet:
            host.write(f"{host.home}/{marker}", "")
        client.wait(job, "SUCCEEDED")
        shown = client.wait_for_log(job, "the value of PERSON is **")
        assert shown.count(b"the value of") == 3 and not leaks.found({"the log": shown}, canaries)
        pages |= {f"{name} afterwards": text for name, text in collect(yard, client, job, run["id"]).items()}
    answers = {f"answer {number}": answer.text for number, answer in enumerate(answers)}
    assert leaks.found({**pages, **answers, "messages of the broker": broker.text}, canaries) == []
    gone = "SELECT id FROM jobs_jobsecret WHERE sealed IS NOT NULL"
    wait_for(lambda: not yard.query(gone), "the values of the job to be deleted", dump=yard.tail)
    wait_for(lambda: not leaks.on_hosts(yard, canaries), "the hosts to have none of it", dump=yard.tail)
    assert client.log(job).count(b"the value of INLINE is **") == 1
    assert leaks.found({"the log": client.log(job), **leaks.places_of(yard)}, canaries) == []
    yard.check()


def collect(yard, client, job, run):
    """What a script, an open page and a viewer of the log get about the job."""
    api, jobs = f"{yard.url}/api/v1", client.jobs_url
    log = f"{api}/jobs/{job}/replicas/workerpool0-0/log"
    addresses = [
        jobs,
        f"{jobs}/{job}",
        f"{api}/jobs/{job}",
        f"{api}/jobs/{job}/events",
        f"{api}/jobs/{job}/samples",
        log,
        f"{log}/search?q=value",
        f"{api}/jobs/{job}/log/search?q=value",
        f"{api}/projects/default/secrets",
        f"{api}/secrets",
        f"{api}/audit",
        f"{api}/hosts",
    ]
    found = {address: client.call("GET", address).text for address in addresses}
    entries = {"resourceNames": ["projects/default"], "filter": f'resource.labels.job_id="{job}"'}
    found["entries"] = client.call("POST", f"{yard.url}/v2/entries:list", json=entries).text
    for path in (f"/ws/jobs/{job}", "/ws/jobs"):
        with client.socket(path) as socket:
            found[path] = socket.recv(timeout=30)
    reader = client.log_socket(job)
    try:
        wait_for(lambda: reader.receive() and reader.bytes, "bytes of the log")
        while reader.receive(timeout=0.5):
            pass
        found["frames of the log"] = b"".join(reader.bytes.values()) + str(reader.headers).encode()
    finally:
        reader.close()
    return found
