"""Programs that were to train together and never connected are told on the page, in history and by REST."""

from __future__ import annotations

import pytest

from tests.harness.hosts.fleet import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.slow
AFTER_S = 24
# Each works; one kind meets its peers at the address that every trainer gets, as torch does, the other does not.
ALONE = """
import time
began = time.monotonic()
while time.monotonic() - began < {seconds}:
    print("step", flush=True)
    time.sleep(0.5)
"""
TOGETHER = """
import os, socket, time
end = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
others = int(os.environ["WORLD_SIZE"]) - 1
if os.environ["RANK"] == "0":
    server = socket.create_server(("", end[1]))
    held = [server.accept() for _ in range(others)]
else:
    while True:
        try:
            held = socket.create_connection(end)
            break
        except OSError:
            time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def own_product():
    with Fleet(2) as fleet, Product("embedded", UNCONNECTED_S=AFTER_S) as product:
        yield product.with_admin().with_hosts(fleet)


def submitted(product, source, name):
    command = ["python3", "-c", source]
    return product.submit(
        job_spec({"command": command, "gpus": 5}, {"command": command, "gpus": 5}, name=name)
    )


def flags(product, job):
    told = product.client.call("GET", f"{product.url}/api/v1/jobs/{job}").json()["flags"]
    return {flag["flag"]: flag["text"] for flag in told}


def test_two_kinds_of_programs_side_by_side_on_two_hosts(own_product):
    product, client = own_product, own_product.client
    alone = submitted(product, ALONE.format(seconds=AFTER_S + 12), "alone")
    client.wait(alone, "RUNNING")
    wait_for(lambda: "UNCONNECTED" in flags(product, alone), "the flag", dump=product.tail)
    text = flags(product, alone)["UNCONNECTED"]
    assert text.startswith(
        "The 2 replicas of workerpool0 and workerpool1 have never connected to each other."
    )
    assert "python3 -m torch.distributed.run train.py" in text
    lines = client.call("GET", f"{product.url}/api/v1/jobs/{alone}/events?kind=flag").json()["events"]
    assert [line["cause"] for line in lines] == [text]
    client.wait(alone, "SUCCEEDED")
    assert flags(product, alone) == {"UNCONNECTED": text}

    together = submitted(product, TOGETHER + ALONE.format(seconds=AFTER_S + 12), "together")
    client.wait(together, "SUCCEEDED")
    assert flags(product, together) == {}
    told = client.call("GET", f"{product.url}/api/v1/jobs/{together}/events?kind=flag").json()["events"]
    assert not [line for line in told if "connected" in line["cause"]], told
    connected = {run["id"]: run["connected"] for run in product.runs(together)}
    assert set(connected.values()) == {1}, connected
    assert {run["connected"] for run in product.runs(alone)} == {0}
    product.check()
