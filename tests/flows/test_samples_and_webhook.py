"""A real job is sampled on its host, flagged as stalled, and its end is sent to a webhook."""

from __future__ import annotations

import json

from tests.flows.test_end_to_end import Browser
from tests.harness.product import job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for
from tests.unit.jobs.notifications.receivers import Hook, serving

SPIN = ["python3", "-c", "print('at work', flush=True)\nwhile True: pass"]


def cores(client, job_id):
    """Return the cores in the latest sample of each replica that has one."""
    told = client.call("GET", f"{client.url}/api/v1/jobs/{job_id}/samples").json()
    return {run["replica"]: run["samples"][-1]["cpu"] for run in told["runs"] if run["samples"]}


def test_a_stalled_replica_shows_no_use_and_its_end_is_sent(yard, client):
    """S3-21, and a notification from the page where it was set up to the webhook that received it."""
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    with serving(Hook()) as hook:
        browser.send(
            "/account/notifications",
            "/account/notifications/add",
            way="hook",
            address=hook.url(),
            events=["cancelled", "failed"],
            wait_hours="4",
        )
        job = yard.submit(job_spec({"command": SPIN}, {"command": ["sleep", "600"]}, name="half asleep"))
        client.wait(job, "RUNNING")
        wait_for(lambda: len(cores(client, job)) == 2, "samples of both replicas", dump=yard.tail)
        wait_for(lambda: cores(client, job)["workerpool0-0"] > 0.1, "the busy one to be seen", dump=yard.tail)
        assert cores(client, job)["workerpool1-0"] < 0.02
        page = browser.get(f"/jobs/{job}/metrics")
        assert 'id="use-workerpool1-0"' in page and "0.0 of" in page[page.index('id="use-workerpool1-0"') :]
        # The hosts report their own load, too: no job of this test holds a GPU.
        table = "/hosts/gpus?view=table"
        wait_for(lambda: "71 W" in browser.get(table), "the load of the GPUs", dump=yard.tail)
        told = client.call("GET", f"{client.url}/api/v1/jobs/{job}/metrics").json()
        known = {chart["name"]: chart["lines"] for chart in told["metrics"]}
        assert {"cpu", "memory", "diskFree", "networkReceive"} <= set(known)
        [busy] = [line for line in known["cpu"] if line["replica"] == "workerpool0-0"]
        assert max(value or 0 for value in busy["values"]) > 0.1
        client.cancel(job)
        client.wait(job, "CANCELLED")
        wait_for(lambda: hook.heard, "the webhook", dump=yard.tail)
        [(_, headers, body)] = hook.heard
        assert json.loads(body)["data"]["job"]["id"] == str(job) and headers["webhook-signature"]

        def lines():
            return client.call("GET", f"{client.url}/api/v1/jobs/{job}/events?kind=notice").json()["events"]

        wait_for(lines, "history to say so", dump=yard.tail)
        assert lines()[0]["cause"] == "ada was notified by webhook: it was cancelled."
        assert client.log(job, "workerpool1-0") == b""  # S3-22: Trainyard adds nothing to its log
