"""Files: a gigabyte from a client into the storage, and what a job wrote from its host into the storage."""

from __future__ import annotations

import hashlib
import http.client
import os
import shlex
import shutil
import subprocess
import time
from urllib.parse import urlsplit

from tests.bench.figures import Figure, short
from tests.bench.hosts_and_product import Master, Shipped, peak_mb, product_on_hosts
from tests.harness.product import job_spec
from tests.harness.proxies import Nginx
from tests.harness.wait_and_processes import wait_for

BLOCK = 1 << 20
# Takes a body into a file, as nginx does it by itself: no other work is asked of it.
PUT_CONFIG = """
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 0;
        location / {{ root {dir}; dav_methods PUT; create_full_put_path on; }}
    }}
}}
"""
# Writes a large file of chance, without the time to make it: the same block over and over, numbered.
WRITER = """
import os, sys
block = bytearray(os.urandom(1 << 20))
with open(os.path.join(os.environ["AIP_MODEL_DIR"], "weights"), "wb") as file:
    for number in range(int(sys.argv[1])):
        block[:8] = number.to_bytes(8, "big")
        file.write(block)
"""


class PutServer(Nginx):
    config = PUT_CONFIG


def upload(options):
    """The same client, the same file, the same disk: first into nginx, then into the product."""
    size_mb = 100 if options.quick else 1000
    with Shipped("apart", MAX_UPLOAD_GB="10") as product:
        product.with_admin()
        path = product.data / "large"
        wanted = write_file(path, size_mb)
        product.client.call("POST", f"{product.url}/api/v1/projects/default/buckets", json={"name": "bench"})
        before = peak_mb(product.processes.of("web"))
        server = PutServer(0)
        try:
            server.start()
            reference = min(put(path, f"{server.url}/large", {}, 201, 204) for _ in range(2))
        finally:
            server.close()
        address = f"{product.url}/api/v1/projects/default/buckets/bench/objects/large"
        seconds = put(path, address, {"Authorization": f"Bearer {product.client.token}"}, 200)
        grown = peak_mb(product.processes.of("web")) - before
        [row] = product.query("SELECT sha256 FROM jobs_blob")
        assert row["sha256"] == wanted, "other bytes are stored than were sent"
    ours, theirs = size_mb * BLOCK / seconds / 1e6, size_mb * BLOCK / reference / 1e6
    yield Figure(
        f"{size_mb} MB uploaded, stored and synced, with digests",
        f"{ours:.0f} MB/s",
        f"raw PUT to nginx {theirs:.0f} MB/s",
        ours / theirs,
        "≥ 0.5 ×",
        ours >= 0.5 * theirs,
    )
    yield Figure("peak memory of web grew meanwhile by, MB", short(grown), aim="≤ 30", met=grown <= 30)


def write_file(path, size_mb):
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size_mb):
            block = os.urandom(BLOCK)
            digest.update(block)
            file.write(block)
        os.fsync(file.fileno())
    return digest.hexdigest()


def put(path, address, headers, *good):
    """Seconds until the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600, blocksize=BLOCK)
    begin = time.perf_counter()
    with path.open("rb") as file:
        connection.request("PUT", parts.path, file, {"Content-Length": str(path.stat().st_size), **headers})
        answer = connection.getresponse()
        answer.read()
    took = time.perf_counter() - begin
    connection.close()
    assert answer.status in good, answer.status
    return took


def outputs(options):
    """From the end of the job until its file is stored, beside rsync and cat, which bring as much to the same disk."""
    size_mb = 60 if options.quick else 500
    with product_on_hosts("apart", hosts=1, disk_mb=2 * size_mb + 400) as product:
        host = product.fleet[0]
        spec = job_spec(
            ["python3", "-c", WRITER, str(size_mb)],
            name="outputs",
            baseOutputDirectory={"outputUriPrefix": "gs://bench-outputs/run"},
        )
        job = product.client.submit(spec)
        product.client.wait(job, "SUCCEEDED", timeout=300)
        begin = time.perf_counter()
        wait_for(lambda: is_stored(product, job), "the outputs to be stored", timeout=600, every=0.05)
        seconds = time.perf_counter() - begin
        host.ssh(f"AIP_MODEL_DIR=$HOME python3 - {size_mb}", stdin=WRITER, timeout=300)
        with Master(host) as master:
            by_cat, by_rsync = copied_by_cat(master, product), copied_by_rsync(master, product)
    ours, cat = size_mb * BLOCK / seconds / 1e6, size_mb * BLOCK / by_cat / 1e6
    theirs = size_mb * BLOCK / by_rsync / 1e6 if by_rsync else None
    yield Figure(
        f"{size_mb} MB of outputs, from the end of the job until stored",
        f"{ours:.0f} MB/s",
        (f"rsync {theirs:.0f} MB/s" if theirs else "no rsync here") + f", ssh cat {cat:.0f} MB/s",
        ours / theirs if theirs else None,
        "≥ 0.6 × rsync",
        ours >= 0.6 * theirs if theirs else None,
    )


def is_stored(product, job):
    found = product.client.call("GET", f"{product.url}/api/v1/jobs/{job}/outputs").json()["hosts"]
    return bool(found) and all(each["state"] == "STORED" for each in found)


def copied_by_cat(master, product):
    copy = product.data / "copy"
    begin = time.perf_counter()
    with copy.open("wb") as file:
        subprocess.run(master.command("cat weights"), stdout=file, check=True)
        os.fsync(file.fileno())
    return ended(begin, copy)


def copied_by_rsync(master, product):
    """Over the same connection: ours was not slowed down by a login either. None where there is no rsync."""
    if shutil.which("rsync") is None:
        return None
    copy = product.data / "copy"
    *ssh, place = master.command()
    begin = time.perf_counter()
    subprocess.run(["rsync", "--fsync", "-e", shlex.join(ssh), f"{place}:weights", copy], check=True)
    return ended(begin, copy)


def ended(begin, copy):
    took = time.perf_counter() - begin
    copy.unlink()
    return took
