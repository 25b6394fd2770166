"""A job of 16 replicas of which one hangs, and all others wait for it, as in a collective operation."""

from __future__ import annotations

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

RANKS, HANGS = 16, 13
BUSY, LAZY = 97, 0
PROGRAM = f"""
import os, threading, time
rank = int(os.environ["RANK"])
for step in range(8):
    print(f"rank {{rank}}: step {{step}}", flush=True)
    time.sleep(0.05)
if rank == {HANGS}:
    def reads_a_shard_that_never_comes():
        threading.Event().wait()
    reads_a_shard_that_never_comes()
while True:
    print(f"rank {{rank}}: all_reduce of step 8 waits", flush=True)
    time.sleep(1)
"""


class HangingJob:
    def __init__(self, yard):
        self.yard, self.id = yard, None

    def start(self):
        """Return the id of the job; start it, if it is not there."""
        if self.id is None:
            pool = {"command": ["python3", "-u", "-c", PROGRAM], "machine": "tiny", "gpus": 1}
            pools = [{**pool, "replicas": count} for count in (1, RANKS - 1)]
            self.id = self.yard.submit(job_spec(*pools, name="pretrain-70b", web_access=True))
            self.yard.client.wait(self.id, "RUNNING")
            self.load_gpus()
        return self.id

    def run(self):
        """The run that hangs."""
        [run] = [row for row in self.yard.runs(self.id) if f"-workerpool1-{HANGS - 1}-" in row["id"]]
        return run

    def load_gpus(self):
        """A collective operation that waits keeps its GPU busy; that of the replica that hangs has nothing to do."""
        lazy = self.run()["gpu_uuids"]
        for host in self.yard.fleet:
            host.gpus(util=[LAZY if uuid in lazy else BUSY for uuid in host.gpu_uuids()])

    def over(self):
        """Wait until it is cancelled, and all is given back."""
        self.yard.client.wait(self.id, "CANCELLED")
        held = f"SELECT 1 FROM jobs_run WHERE job_id = {self.id} AND released_at IS NULL"
        wait_for(lambda: not self.yard.query(held), "the end of the job that hung")
        self.id = None
        for host in self.yard.fleet:
            host.gpus(util=0)
