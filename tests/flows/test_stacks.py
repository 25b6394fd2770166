"""The stacks of a gang on real hosts: by the command line, and by the page without scripts."""

from __future__ import annotations

import re

import pytest

from tests.flows.test_command_line import Page, command, logged_in
from tests.harness.product import job_spec
from tests.harness.product.product import PASSWORD

__all__ = ["command", "logged_in"]

# All wait for the others in a sum, but one, which writes a checkpoint to a disk that does not answer.
GANG = """
import os, threading, time
def waits_in_all_reduce():
    while True: time.sleep(3600)
def writes_checkpoint():
    while True: time.sleep(3600)
print("stands", flush=True)
writes_checkpoint() if os.environ["RANK"] == "1" else waits_in_all_reduce()
"""
HEADING = re.compile(r'<h2 id="stack-\d+" class="mono">(.*?)</h2>')


@pytest.fixture
def gang(yard):
    pool = {"command": ["python3", "-c", GANG], "gpus": 1}
    job_id = yard.submit(job_spec(pool, {**pool, "replicas": 2}, name="hangs", web_access=True))
    yard.client.wait(job_id, "RUNNING")
    names = ["workerpool0-0", "workerpool1-0", "workerpool1-1"]
    for name in names:
        yard.client.wait_for_log(job_id, "stands", name)
    yield job_id
    yard.client.cancel(job_id)
    yard.client.wait(job_id, "CANCELLED")


def test_the_one_that_stands_elsewhere_comes_first(yard, logged_in, gang):
    """Nobody has put py-spy on the hosts before, which have no internet."""
    text = logged_in.run("stacks", str(gang)).stdout
    odd, others = text.index("×1 in 1: workerpool1-0"), text.index("×2 in 2: workerpool0-0, workerpool1-1")
    assert odd < text.index("writes_checkpoint (<string>:6)") < others, text
    assert others < text.index("waits_in_all_reduce (<string>:4)"), text
    assert "3 of 3 replicas" in text

    page = Page(yard.url)
    page.post("/login", {"username": "ada", "password": PASSWORD, "next": ""})
    html = page.post(f"/jobs/{gang}/stacks", {})
    assert HEADING.findall(html) == ["workerpool1-0", "workerpool0-0, workerpool1-1"]
    taken = yard.query("SELECT actor FROM jobs_auditentry WHERE what = 'stacks.take' ORDER BY id")
    assert len(taken) == 2
