"""The delay of log lines, and the throughput of log bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import Master, peak_mb, product_on_hosts
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

# A line every 20 ms with the time at which it was printed; hosts share this machine's wall clock.
PRINTER = (
    "import sys,time\n"
    "for n in range(int(sys.argv[1])):\n"
    "    print(repr(time.time()), flush=True)\n"
    "    time.sleep(0.02)\n"
)
# As in a training log, words repeat and numbers do not.
WRITER = (
    "import random,sys\n"
    "left=int(sys.argv[1])<<20\n"
    "random.seed(7)\n"
    "step=0\n"
    "while left>0:\n"
    "    block=''.join('step %d | loss %.6f | lr %.3e | grad_norm %.4f | tokens/s %d\\n'\n"
    "        % (step+i, random.random()*3, random.random()*1e-3, random.random()*9, random.randrange(90000,99999))\n"
    "        for i in range(4000))\n"
    "    step+=4000; left-=len(block); sys.stdout.write(block)\n"
)


def line_latency(options):
    count = 300 if options.quick else 1500
    with product_on_hosts("apart") as product:
        ours = printed_to_client(product, count)
        product.settle()
        tail = printed_to_tail(product.fleet[0], count)
    p50, p99 = percentile(ours, 0.5), percentile(ours, 0.99)
    met = p50 <= 10 and p99 <= 60
    reference = f"ssh tail -F {spread(tail)}"
    ratio = p50 / percentile(tail, 0.5)
    yield Figure(
        "line printed → WebSocket client", spread(ours), reference, ratio, "p50 ≤ 10, p99 ≤ 60 ms", met
    )


def printed_to_client(product, count):
    job_id = product.submit(job_spec(["python3", "-c", PRINTER, count], name="lines"))
    delays, rest, taken = [], b"", 0
    with product.client.socket(f"/ws/jobs/{job_id}/log/workerpool0-0") as socket:
        socket.send(json.dumps({"from": 0}))
        while len(delays) < count:
            message = socket.recv(timeout=30)
            now = time.time()
            if not isinstance(message, bytes):
                continue
            taken += len(message)
            socket.send(json.dumps({"ack": taken}))
            *lines, rest = (rest + message).split(b"\n")
            delays += [(now - float(line)) * 1000 for line in lines]
    return delays[20:]


def printed_to_tail(host, count):
    with Master(host) as master:
        printer = f"rm -f lines; touch lines; (python3 -u - {count} >lines) & tail -n +1 -F lines"
        process = subprocess.Popen(
            master.command(f"cat >printer.py; {printer.replace('-u -', '-u printer.py')}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        process.stdin.write(PRINTER.encode())
        process.stdin.close()
        delays = []
        for _ in range(count):
            line = process.stdout.readline()
            delays.append((time.time() - float(line)) * 1000)
        process.kill()
        process.wait()
    return delays[20:]


def bulk(options):
    size_mb = options.log_mb or (60 if options.quick else 500)
    with product_on_hosts("apart", disk_mb=size_mb * 2 + 300, LOG_BUDGET_MB=str(size_mb * 2)) as product:
        host = product.fleet[0]
        host.ssh("cat >writer.py", stdin=WRITER)
        host.ssh(f"python3 writer.py {size_mb} >reference.log", timeout=600)
        written = int(host.ssh("stat -c %s reference.log").stdout)
        wanted = host.ssh("sha256sum reference.log", timeout=600).stdout.split()[0]
        reference, copied = gzip_seconds(host, product.data / "copy")
        host.ssh("rm reference.log")
        seconds, stored = stored_seconds(product, size_mb, written)
        parts = {role: peak_mb(product.processes.of(role)) for role in ("web", "worker", "dispatcher")}
    assert copied == wanted, "ssh brought other bytes than the program printed"
    assert stored == wanted, "the console stored other bytes than the program printed"
    ours, theirs = written / seconds / 1e6, written / reference / 1e6
    name = f"{written / 1e6:.0f} MB log, stored, complete and compared"
    yield Figure(
        name,
        f"{ours:.0f} MB/s",
        f"ssh gzip -1 {theirs:.0f} MB/s",
        ours / theirs,
        "≥ 1.2 ×",
        ours >= 1.2 * theirs,
    )
    peaks = ", ".join(f"{role} {short(value)}" for role, value in parts.items())
    yield Figure("peak memory of the console meanwhile, MB", peaks)


def gzip_seconds(host, copy):
    """Return the seconds, and the digest of what came."""
    with Master(host) as master:
        begin = time.perf_counter()
        packed = subprocess.Popen(master.command("gzip -1 < reference.log"), stdout=subprocess.PIPE)
        with copy.open("wb") as file:
            subprocess.run(["gunzip"], stdin=packed.stdout, stdout=file, check=True)
        packed.wait()
        took = time.perf_counter() - begin
    with copy.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    copy.unlink()
    return took, digest


def stored_seconds(product, size_mb, written):
    """Return the seconds until all is stored, and the digest of what the console has.

    The replica copies a prepared file, so that making the text is not measured."""
    script = f"python3 ~/writer.py {size_mb} >made; cat made; rm made"
    job_id = product.submit(job_spec(["bash", "-c", script], name="bulk"))
    stored = f"SELECT log_stored, log_size FROM jobs_run WHERE job_id = {job_id}"
    wait_for(lambda: first(product.query(stored), "log_stored"), "the first bytes", timeout=600, every=0.01)
    begin = time.perf_counter()
    complete = lambda: first(product.query(stored), "log_stored") >= written  # noqa: E731
    wait_for(complete, "every byte to be stored", timeout=600, every=0.02)
    return time.perf_counter() - begin, downloaded_digest(product, job_id)


def downloaded_digest(product, job_id):
    digest, url = hashlib.sha256(), f"{product.url}/api/v1/jobs/{job_id}/replicas/workerpool0-0/log"
    with product.client.session.get(url, stream=True, timeout=600) as answer:
        for piece in answer.iter_content(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def first(rows, column):
    return rows[0][column] if rows else 0
