"""The log viewer in headless Chromium: from a printed line to its element, and a tab beside 5,000 lines a second.

Replicas print the clock of their host, which is the browser's: both are on this machine. The counters are Chromium's.
"""

from __future__ import annotations

import time

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.browser import headless_chromium, log_in
from tests.harness.product import job_spec

RATE = 5000
RANKS = 64
# So small that all ranks have room on the hosts of any machine.
SMALL, MACHINE = "printer", {"cpus": 0.05, "memoryMb": 32}
# PROGRAM LINES_A_SECOND SECONDS: prints in turns of at least 10 ms, each line with the time at which it is printed.
PRINTER = (
    "import sys, time\n"
    "rate, seconds = int(sys.argv[1]), float(sys.argv[2])\n"
    "begin = time.time(); number = 0\n"
    "while time.time() < begin + seconds:\n"
    "    now = time.time(); due = int((now - begin) * rate)\n"
    "    sys.stdout.write(''.join('step %d | loss 2.345678 | lr 1.000e-04 | tokens/s 95123 | @%.4f\\n' % (n, now)\n"
    "        for n in range(number, due))); sys.stdout.flush(); number = max(number, due)\n"
    "    time.sleep(max(0.01, 1 / rate))\n"
)
WATCH = """() => {
  window.delays = []; window.longTasks = []; window.keys = [];
  new MutationObserver((records) => {
    const now = Date.now();
    const last = records.findLast((record) => record.addedNodes.length)?.addedNodes;
    const printed = last && /@(\\d+\\.\\d{4})$/.exec(last[last.length - 1].textContent);
    if (printed) delays.push(now - printed[1] * 1000);
  }).observe(document.querySelector(".log-body"), { childList: true });
  const each = (type, add, more) => new PerformanceObserver((list) => list.getEntries().forEach(add))
    .observe({ type, ...more });
  each("longtask", (entry) => longTasks.push(entry.duration));
  each("event", (entry) => entry.name === "keydown" && keys.push(entry.duration), { durationThreshold: 16 });
}"""


def tab(options):
    seconds = 15 if options.quick else options.tab_s
    with product_on_hosts("apart") as product, headless_chromium(whole=True) as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(60_000)
        log_in(page, product.url)
        product.client.call("PUT", f"{product.url}/api/v1/machineTypes/{SMALL}", json=MACHINE)
        yield from quiet(product, page)
        yield from flood(product, page, "one replica", 1, seconds)
        if not options.quick:
            yield from flood(product, page, f"{RANKS} ranks merged", RANKS, min(seconds, 30))


def opened(product, page, rate, seconds, replicas=1):
    """Submit a job that prints, and open its log."""
    command = ["python3", "-c", PRINTER, str(rate), str(seconds)]
    counts = [1, replicas - 1][: 1 + (replicas > 1)]
    pools = [{"command": command, "machine": SMALL, "replicas": count} for count in counts]
    job_id = product.submit(job_spec(*pools, name="printer"))
    product.client.wait(job_id, "RUNNING", timeout=120)
    page.goto(f"{product.url}/jobs/{job_id}/log" + ("/workerpool0-0" if replicas == 1 else ""))
    page.locator(".log-body .row").first.wait_for()
    page.evaluate(WATCH)
    return job_id


def quiet(product, page):
    job_id = opened(product, page, 50, 14)
    time.sleep(8)
    delays = page.evaluate("delays")
    product.client.wait(job_id, "SUCCEEDED", timeout=120)
    p50 = percentile(delays, 0.5)
    yield Figure("line printed → its element, 50 lines/s", spread(delays), "", None, "p50 ≤ 30 ms", p50 <= 30)


def flood(product, page, name, replicas, seconds):
    """Follow for most of the time, then type a search and scroll while lines come."""
    job_id = opened(product, page, RATE // replicas, seconds + 25, replicas)
    counters = Counters(page)
    time.sleep(3)
    page.evaluate("delays.length = longTasks.length = 0")
    first = counters.read()
    time.sleep(seconds / 2)
    half = counters.read()
    time.sleep(seconds / 2)
    last = counters.read()
    delays, tasks = page.evaluate("[delays, longTasks]")
    busy = [
        (b["TaskDuration"] - a["TaskDuration"]) / (b["at"] - a["at"])
        for a, b in ((first, half), (half, last))
    ]
    frames = max(len(delays), 1)
    many = f"{name}, {RATE} lines/s for {seconds} s"
    yield Figure(
        f"{many}: printed → its element",
        spread(delays),
        "",
        None,
        "p50 ≤ 30 ms",
        percentile(delays, 0.5) <= 30,
    )
    yield Figure(
        "processor time of the main thread, cores: first and second half",
        " ".join(f"{each:.2f}" for each in busy),
    )
    heaps = [short(each["JSHeapUsedSize"] / 1e6) for each in (first, half, last)]
    grown = last["JSHeapUsedSize"] - half["JSHeapUsedSize"]
    yield Figure("memory of scripts, MB: begin, half, end", " ".join(heaps), "", None, "flat", grown < 10e6)
    nodes = [str(int(each["Nodes"])) for each in (first, half, last)]
    yield Figure(
        "elements and texts: begin, half, end",
        " ".join(nodes),
        "",
        None,
        "flat",
        last["Nodes"] < 1.3 * half["Nodes"] + 1000,
    )
    yield Figure(
        f"tasks over 50 ms, of {frames} updates",
        f"{len(tasks)}, longest {max(tasks, default=0):.0f} ms",
        "",
        None,
        "< 1 %",
        len(tasks) < frames / 100,
    )
    yield from typed(page)
    product.client.wait(job_id, "SUCCEEDED", timeout=120)


def typed(page):
    page.evaluate("longTasks.length = keys.length = 0")
    search = page.locator("[data-part=search]")
    search.press_sequentially("loss 2.34", delay=150)
    body = page.locator(".log-body")
    body.hover()
    for _ in range(10):
        page.mouse.wheel(0, -400)
        time.sleep(0.15)
    tasks, keys = page.evaluate("[longTasks, keys]")
    search.fill("")
    name = "search typed and scrolled meanwhile: keys, ms"
    yield Figure(
        name,
        spread(keys) if keys else "all below 16",
        "",
        None,
        "p95 ≤ 100",
        not keys or percentile(keys, 0.95) <= 100,
    )
    yield Figure("tasks over 50 ms meanwhile", f"{len(tasks)}, longest {max(tasks, default=0):.0f} ms")


class Counters:
    def __init__(self, page):
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self):
        self.session.send("HeapProfiler.collectGarbage")
        found = self.session.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in found} | {"at": time.monotonic()}
