"""The code of a job, to ten hosts: how long it takes, and what another job's lines feel of it meanwhile."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import Master, product_on_hosts
from tests.bench.logs import printed_to_client
from tests.harness.product import job_spec

HOSTS = 10
# As many as the product ships to at a time.
AT_ONCE = 4
# None ends before all have printed: a job is over when its primary ends.
PROGRAM = b"import os, time; print('noise', os.path.getsize('noise'), flush=True); time.sleep(3600)\n"
# The delay of a line is looked at in portions of so many, which need four seconds.
LINES = 200


def shipping(options):
    """As people get it, and with a limit. Memory holds no disks for as many bytes on ten hosts."""
    size_mb = options.ship_mb or (30 if options.quick else 1000)
    for limit, settings in (("as it comes", {}), ("at most 60 MB/s", {"SHIP_MB_S": "60"})):
        with product_on_hosts("apart", hosts=HOSTS, disk_mb=None, **settings) as product:
            quiet = printed_to_client(product, LINES)
            archive = made_archive(product.data / "code.tar", size_mb)
            job = stored_job(product, archive)
            seconds, busy = beside(product, shipped_seconds, job)
            reference, by_hand = beside(product, copied_seconds, archive)
        mb = HOSTS * size_mb
        yield Figure(
            f"{size_mb} MB of code, POST → a line of each of {HOSTS} hosts, {limit}",
            f"{seconds:.0f} s ({mb / seconds:.0f} MB/s)",
            f"ssh and tar, {AT_ONCE} hosts at a time {reference:.0f} s ({mb / reference:.0f} MB/s)",
            reference / seconds,
        )
        yield Figure(
            "a line of another job meanwhile",
            spread(busy),
            f"beside ssh and tar {spread(by_hand)}; beside nothing {spread(quiet)}",
            percentile(busy, 0.5) / percentile(by_hand, 0.5),
        )
        p95, p95_by_hand = percentile(busy, 0.95), percentile(by_hand, 0.95)
        yield Figure(
            "the same, p95",
            f"{short(p95)} ms",
            f"beside ssh and tar {short(p95_by_hand)} ms",
            p95 / p95_by_hand,
            aim="≤ 60 ms",
            met=p95 <= 60,
        )


def made_archive(path, size_mb):
    """A tar file that cannot be made smaller."""
    with tarfile.open(path, "w") as archive:
        for name, data in (("train.py", PROGRAM), ("noise", os.urandom(size_mb << 20))):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def stored_job(product, archive):
    """The document of a job with this code, which is in the storage."""
    url = f"{product.url}/api/v1/projects/default/artifacts"
    with archive.open("rb") as file:
        product.client.call("POST", url, params={"kind": "archive", "name": archive.name}, data=file)
    document = job_spec(
        *[{"command": ["python3", "train.py"], "gpus": 8, "replicas": count} for count in (1, HOSTS - 1)]
    )
    with archive.open("rb") as file:
        sha = hashlib.file_digest(file, "sha256").hexdigest()
    for pool in document["jobSpec"]["workerPoolSpecs"]:
        pool["trainyard"] = {"code": {"artifact": sha}}
    return document


def shipped_seconds(product, document):
    """Until each replica has printed."""
    begin = time.perf_counter()
    job = product.client.submit(document)
    for replica in ("workerpool0-0", *(f"workerpool1-{number}" for number in range(HOSTS - 1))):
        product.client.wait_for_log(job, "noise", replica, timeout=900)
    seconds = time.perf_counter() - begin
    product.client.cancel(job)
    return seconds


def beside(product, ship, what):
    """(seconds of the shipping, delays of another job's lines meanwhile)."""
    over, delays = threading.Event(), []

    def look():
        while not over.is_set():
            delays.extend(printed_to_client(product, LINES))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        seconds = ship(product, what)
    finally:
        over.set()
        looking.join()
    return seconds, delays


def copied_seconds(product, archive):
    """The same by hand: over connections that are open, as many at once as the product has."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda host: copied(host, archive), product.fleet))
        return time.perf_counter() - begin


def copied(host, archive):
    with Master(host) as master, archive.open("rb") as file:
        command = master.command("mkdir by-hand && tar -xf - -C by-hand")
        subprocess.run(command, stdin=file, check=True)
