"""The pictures of the README, taken of the real product with jobs on test hosts: `make screenshots`.

They show what a person sees: nothing is drawn, and only pages that the README mentions are opened.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.browser import headless_chromium, log_in
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

PLACE = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZE = {"width": 1280, "height": 860}
MAX_BYTES = 250_000
# Some samples, so that there is a line to draw.
SAMPLED = 3
TRIALS = 24
TRAINS = """
import itertools, math, time
for step in itertools.count(1):
    loss = 0.3 + 4 * math.exp(-step / 300)
    print(f"step {step:>5}  loss {loss:.4f}  lr 3.0e-04  tokens/s {51_200 + step % 97}", flush=True)
    time.sleep(0.25)
"""
FAILS = """
print("loading vision-bench, 4 shards")
raise ValueError("expected images of (3, 224, 224), got (4, 224, 224)")
"""


def python(script, **pool):
    return {"command": ["python3", "-c", script], **pool}


def submit_all(client):
    done = client.submit(job_spec(["bash", "-c", "echo 'exported to /data/llama'"], name="export-llama"))
    failed = client.submit(job_spec(python(FAILS, gpus=1), name="eval-vision-bench"))
    client.wait(done, "SUCCEEDED")
    client.wait(failed, "FAILED")
    pools = python(TRAINS, gpus=4), python(TRAINS, gpus=4, replicas=2)
    trains = client.submit(job_spec(*pools, name="pretrain-7b", web_access=True, timeout_s=86400))
    client.wait(trains, "RUNNING")
    client.wait(client.submit(job_spec(python(TRAINS, gpus=2), name="finetune-support")), "RUNNING")
    client.submit(job_spec(["true"], {"command": ["true"], "gpus": 8, "replicas": 2}, name="sweep-large"))
    return trains


def sampled(yard, job):
    rows = yard.query(
        f"SELECT count(*) AS n FROM jobs_runsample s JOIN jobs_run r ON r.id = s.run_id WHERE r.job_id = {job}"
    )
    return rows[0]["n"] >= SAMPLED * 3


def tuned(page, url):
    """Submit the sample study by the form. Returns the path of its page when all its trials are over."""
    page.goto(url + "/studies/new?sample")
    page.locator("[name=max_trials]").fill(str(TRIALS))
    page.locator("[name=parallel_trials]").fill("4")
    page.locator("#new-job .button.main").click()
    page.wait_for_url("**/studies/*/")
    page.locator("#study-head [data-state=SUCCEEDED]").wait_for(timeout=300_000)
    return urlsplit(page.url).path


def main():
    PLACE.mkdir(exist_ok=True)
    with product_on_hosts(hosts=3) as yard, headless_chromium(whole=True) as browser:
        job = submit_all(yard.client)
        wait_for(lambda: sampled(yard, job), "samples of the job", timeout=120)
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        log_in(page, yard.url)
        paths = {
            "study": tuned(page, yard.url),
            "jobs": "/jobs/",
            "job": f"/jobs/{job}/",
            "gpus": "/hosts/gpus",
        }
        for name, path in paths.items():
            page.goto(yard.url + path)
            if name == "job":
                page.get_by_text("loss").first.wait_for()
            if name != "gpus":
                page.get_by_text("Live", exact=True).wait_for()
            picture = PLACE / f"{name}.png"
            page.screenshot(path=picture)
            assert picture.stat().st_size <= MAX_BYTES, f"{picture} has {picture.stat().st_size} bytes"
            print(picture)


if __name__ == "__main__":
    main()
