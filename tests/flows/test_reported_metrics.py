"""What a program reports on a real host is on the page of its job and in the API, while processes die."""

from __future__ import annotations

import math

from tests.flows.test_end_to_end import Browser
from tests.harness.product import job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

# It does not have cloudml-hypertune. What it writes for MLflow is what MLflow's own file store writes.
PROGRAM = """
import hypertune, json, os, time
report = hypertune.HyperTune().report_hyperparameter_tuning_metric
for step in range(1, 3001):
    report("loss", 1 / step, step)
os.makedirs("mlruns/0/1/metrics", exist_ok=True)
with open("mlruns/0/1/metrics/lr", "w") as file:
    file.write("%d 0.001 1\\n" % (time.time() * 1000))
with open(os.environ["TRAINYARD_METRICS"], "a") as file:
    print(json.dumps({"step": 1, "accuracy": 0.5, "<b>": float("nan")}), file=file)
print("reported", flush=True)
while not os.path.exists(os.path.expanduser("~/end-of-reports")):
    time.sleep(0.1)
with open(os.environ["TRAINYARD_METRICS"], "a") as file:
    file.write('{"step": 2, "accuracy": 0.75}')
"""


def reports(client, job):
    return client.call("GET", f"{client.url}/api/v1/jobs/{job}/reports").json()


def named(client, job):
    return {(each["source"], each["name"]): each for each in reports(client, job)["series"]}


def test_what_a_program_reports_is_shown_live_and_is_whole_in_the_end(yard, client):
    job = yard.submit(job_spec(["python3", "-c", PROGRAM], name="reports"))
    client.wait(job, "RUNNING")
    wait_for(lambda: ("file", "accuracy") in named(client, job), "what it reports", dump=yard.tail)
    wait_for(lambda: ("mlflow", "lr") in named(client, job), "what it tells MLflow", dump=yard.tail)
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    page = browser.get(f"/jobs/{job}/metrics")
    assert "Reported by the program" in page and "by MLflow" in page and "&lt;b&gt;" in page
    assert not reports(client, job)["complete"]
    for dispatcher in yard.processes.of("dispatcher"):
        yard.processes.kill_one(dispatcher)
    for host in yard.fleet:
        host.run_inside("touch", f"{host.home}/end-of-reports")
    client.wait(job, "SUCCEEDED")
    wait_for(lambda: reports(client, job)["complete"], "all of it", dump=yard.tail)
    found = named(client, job)
    loss, accuracy = found["hypertune", "loss"], found["file", "accuracy"]
    assert (loss["reports"], loss["last"]["step"], loss["highest"]) == (3000, 3000, 1.0)
    assert math.isclose(loss["lowest"], 1 / 3000) and len(loss["points"]) <= 2000
    assert [point["value"] for point in accuracy["points"]] == [0.5, 0.75]
    assert found["file", "<b>"]["last"]["notNumber"] == "NaN"
    for host in yard.fleet:
        host.run_inside("rm", f"{host.home}/end-of-reports")
    yard.check("after a program that reported")
