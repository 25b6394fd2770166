"""A log of a gigabyte: the time to read its end, the memory of the web process, and whether every byte comes back."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time

from tests.bench.figures import Figure, short, spread
from tests.bench.hosts_and_product import forget_peak, peak_mb, product_on_hosts, rss_mb
from tests.harness.browser import headless_chromium, log_in
from tests.harness.product import job_spec

# One block is made once and printed again and again with a number, so that making the text is not measured.
LINES = 200_000
GIANT = (
    "import random,sys\n"
    "random.seed(7)\n"
    "block=''.join('step %d | loss %.6f | lr %.3e | grad_norm %.4f | tokens/s %d\\n'\n"
    "    % (i, random.random()*3, random.random()*1e-3, random.random()*9, random.randrange(90000,99999))\n"
    f"    for i in range({LINES})).encode()\n"
    "out, left, epoch = sys.stdout.buffer, int(sys.argv[1])*10**6, 0\n"
    "while left > 0:\n"
    "    left -= out.write(b'epoch %d\\n' % epoch) + out.write(block); epoch += 1\n"
    "out.write(b'the very last line\\n')\n"
)
FIRST, LAST = "epoch 0", "the very last line"
JUMPS = 7
RANGE = 64 * 1024


def giant(options):
    size_mb = 60 if options.quick else 1000
    with product_on_hosts("apart", disk_mb=size_mb * 2 + 300, LOG_BUDGET_MB=str(size_mb * 2)) as product:
        job_id = product.submit(job_spec(["python3", "-c", GIANT, size_mb], name="giant"))
        product.client.wait(job_id, "SUCCEEDED", timeout=900)
        product.settle(timeout=900)
        web = product.processes.of("web")
        before = rss_mb(web)
        forget_peak(web)
        total, ends = last_range(product, job_id)
        name = f"of a log of {total / 1e6:.0f} MB"
        yield Figure(f"its last 64 KiB by Range, {name}", spread(ends), "", None, "at once", max(ends) < 500)
        opened, jumps, starts = in_browser(product, job_id)
        yield Figure("page opened → last line seen", f"{opened:.0f} ms", "", None, "at once", opened < 2000)
        yield Figure("End pressed → last line seen", spread(jumps), "", None, "at once", max(jumps) < 1000)
        yield Figure("Start pressed → first line seen", spread(starts))
        seconds, same = download(product, job_id, size_mb, total)
        yield Figure(
            "downloaded whole, byte for byte", f"{total / seconds / 1e6:.0f} MB/s", "", None, "", same
        )
        grown = peak_mb(web) - before
        yield Figure(
            "web grew meanwhile by, MB", short(grown), f"of {short(before)}", None, "bounded", grown < 64
        )


def log_url(product, job_id):
    return f"{product.url}/api/v1/jobs/{job_id}/replicas/workerpool0-0/log"


def last_range(product, job_id):
    """Return the size of the log, and the ms of each answer to `bytes=-65536`."""
    times = []
    for _ in range(JUMPS):
        begin = time.perf_counter()
        answer = product.client.call("GET", log_url(product, job_id), headers={"Range": f"bytes=-{RANGE}"})
        times.append((time.perf_counter() - begin) * 1000)
        assert answer.status_code == 206 and len(answer.content) == RANGE, answer.headers
        assert answer.content.endswith(LAST.encode() + b"\n")
    return int(answer.headers["Content-Range"].rpartition("/")[2]), times


def in_browser(product, job_id):
    """Measure the ms until the page shows the end after opening and after End, and the beginning after Start."""
    with headless_chromium(whole=True) as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(120_000)
        log_in(page, product.url)
        begin = time.perf_counter()
        page.goto(f"{product.url}/jobs/{job_id}/log/workerpool0-0")
        row(page, LAST).wait_for()
        opened = (time.perf_counter() - begin) * 1000
        ends, starts = [], []
        for _ in range(JUMPS):
            starts.append(pressed(page, "Start", FIRST))
            ends.append(pressed(page, "End", LAST))
    return opened, ends, starts


def row(page, text):
    return page.locator(".log-body .row").get_by_text(text, exact=True)


def pressed(page, button, text):
    assert not row(page, text).is_visible()
    begin = time.perf_counter()
    page.get_by_role("button", name=button, exact=True).click()
    row(page, text).wait_for()
    return (time.perf_counter() - begin) * 1000


def download(product, job_id, size_mb, total):
    """Return the seconds of a whole download, and whether it is what the same program prints here."""
    wanted = wanted_digest(size_mb)
    digest, size, begin = hashlib.sha256(), 0, time.perf_counter()
    with product.client.session.get(log_url(product, job_id), stream=True, timeout=600) as answer:
        for piece in answer.iter_content(1 << 20):
            digest.update(piece)
            size += len(piece)
    return time.perf_counter() - begin, size == total and digest.digest() == wanted


def wanted_digest(size_mb):
    digest = hashlib.sha256()
    with subprocess.Popen([sys.executable, "-c", GIANT, str(size_mb)], stdout=subprocess.PIPE) as program:
        while piece := program.stdout.read(1 << 20):
            digest.update(piece)
    return digest.digest()
