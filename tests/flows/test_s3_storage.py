"""The whole product with its stored files in S3: uploads, ranges, code for hosts, outputs."""

from __future__ import annotations

import gzip
import hashlib
import os

import pytest

from tests.flows.test_brought import SHOW, Storage, with_code
from tests.flows.test_outputs import WRITER, all_stored, content
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.s3_server import S3Server
from tests.unit.agents.runner.hostile_archives import tar

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    try:
        yield found.start()
    finally:
        found.close()


@pytest.fixture(scope="module")
def yard(server):
    product = Product("embedded", STORAGE_URL=server.url)
    product.more_environment = dict(server.credentials)
    with Fleet(2) as fleet, product:
        product.with_admin().with_hosts(fleet)
        yield product


def names(server):
    return server.names()[0]


def test_what_is_stored_is_in_s3_and_nowhere_else(yard, server):
    assert "Files of projects are stored in s3://kept-files/lab/ty-" in yard.tail()
    data = os.urandom(40 << 20)
    uri = Storage(yard.client).put("large", data)
    assert uri == "gs://brought/large"
    [key] = names(server)
    assert hashlib.sha256(data).hexdigest() in key
    assert not list((yard.data / "artifacts").glob("*/*/*")) and not list((yard.data / "uploads").iterdir())
    url = f"{yard.url}/api/v1/projects/default/buckets/brought/objects/large?alt=media"
    part = yard.client.call("GET", url, headers={"Range": "bytes=30000000-30000009"})
    assert part.status_code == 206 and part.content == data[30_000_000:30_000_010]
    assert yard.client.call("GET", url).content == data


def test_code_comes_from_s3_and_outputs_go_there_while_a_worker_is_killed(yard, server):
    archive = gzip.compress(tar(("train.py", {"data": b"print('from', 'S3')"})), 1)
    sha = Storage(yard.client).artifact(archive)
    brought = with_code({"command": SHOW}, artifact=sha)
    first = yard.submit({"displayName": "brought from S3", "jobSpec": {"workerPoolSpecs": [brought]}})
    yard.client.wait(first, "SUCCEEDED")
    assert yard.client.log(first) == b"from S3\n"
    directory = {"outputUriPrefix": "gs://s3-outputs/run"}
    command = ["python3", "-c", WRITER, "gs://s3-outputs/run/model", "60"]
    job = yard.submit(job_spec(command, name="outputs", baseOutputDirectory=directory))
    yard.client.wait(job, "SUCCEEDED")
    old = yard.processes.kill("worker")
    yard.processes.wait_for_new("worker", old)
    all_stored(yard, job)
    answer = content(yard, job, "s3-outputs/run/model/weights")
    digest = hashlib.sha256(answer.content).hexdigest()
    assert digest.encode() in yard.client.log(job)
    assert sum(digest in key for key in names(server)) >= 1

    yard.check()
