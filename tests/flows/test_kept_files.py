"""What a host keeps for the runs to come: told in REST, removed by an admin, and shipped anew for the next job."""

from __future__ import annotations

import pytest

from tests.flows.test_brought import Storage, archive, submit, with_code
from tests.harness.product.client import Refused
from tests.harness.wait_and_processes import wait_for

CODE = "print('code', flush=True)\n"
# It ends when the file is there.
UNTIL = (
    "import os, time\nwhile not os.path.exists(os.path.expanduser('~/kept-done')):\n    time.sleep(0.05)\n"
)


@pytest.mark.slow
def test_an_admin_removes_from_a_host_what_no_job_needs(yard, client):
    sha = Storage(client).artifact(archive(CODE + UNTIL))
    pool = with_code({"command": ["python3", "train.py"]}, artifact=sha)
    job = submit(yard, pool, name="kept")
    assert client.wait_for_log(job, "\n") == b"code\n"
    host = yard.runs(job)[0]["host_id"]
    address = f"{client.url}/api/v1/hosts/{host}/kept"

    def told(kind):
        found = client.call("GET", address).json()["kept"]
        return [each for each in found if each["kind"] == kind and "default" in each["projects"]]

    [tree] = wait_for(lambda: told("trees"), "the host tells of the code")
    assert tree["inUse"] == f"needed by job {job}" and tree["sizeBytes"] > 0
    with pytest.raises(Refused) as refused:
        client.call("POST", f"{address}/trees/{tree['key']}:discard")
    assert refused.value.status == 400 and str(job) in str(refused.value)
    for each in yard.fleet:
        each.write(f"{each.home}/kept-done", "")
    client.wait(job, "SUCCEEDED")
    wait_for(lambda: told("trees")[0]["inUse"] == "", "nothing needs it")
    client.call("POST", f"{address}/trees/{tree['key']}:discard")
    wait_for(lambda: not told("trees"), "it is gone")
    again = submit(yard, pool, name="again")
    client.wait(again, "SUCCEEDED")
    assert wait_for(lambda: told("trees"), "it is there again")[0]["key"] == tree["key"]
