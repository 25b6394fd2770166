"""Shells that their host keeps: over every fault it is the same shell, and each byte comes once, both ways."""

from __future__ import annotations

import re
import time

import pytest

from agents.runner.shells.frames import SILENT_S
from tests.bench.hosts_and_product import rss_mb
from tests.flows.running_jobs import LongJob
from tests.harness.product.client import Client
from tests.harness.product.held_shell import HeldShell
from tests.harness.wait_and_processes import wait_for

# It notes each line that it reads, and answers with the line.
ECHO = b"stty -echo; PS1=; while read -r line; do echo $line >> ~/%s; echo got-$line; done\n"


@pytest.fixture
def job(yard):
    found = LongJob(yard, name="shells", web_access=True).running()
    yield found
    found.succeeded()
    for host in yard.fleet:
        assert holders(host) == [], "a shell ends with its job"


@pytest.fixture
def shell(job, client):
    shell = HeldShell(client, job.run()["id"]).connect()
    yield shell
    if not shell.over:
        shell.socket.send('{"end": true}')
        shell.until(lambda each: each.over, "the end of the shell")


def kill_web(yard, host, shell):
    old = yard.processes.kill("web")
    yard.processes.wait_for_new("web", old)


def cut(yard, host, shell):
    host.cut()
    time.sleep(0.5)
    host.restore()


def freeze(yard, host, shell):
    host.blackhole()
    time.sleep(12)
    host.heal()


def reload(yard, host, shell):
    """As a page does: it has nothing, and gets all."""
    before, shell.output = shell.output, b""
    shell.drop()
    shell.connect()
    shell.until(lambda each: each.begin + len(each.output) >= len(before), "what was there before")
    assert shell.output[: len(before)] == before


@pytest.mark.parametrize(
    "fault",
    [
        kill_web,
        pytest.param(cut, marks=pytest.mark.needs_namespaces),
        pytest.param(freeze, marks=[pytest.mark.slow, pytest.mark.needs_namespaces]),
        reload,
    ],
)
def test_numbered_bytes_come_once_over(yard, job, shell, fault):
    host, ledger = job.host(), f"ledger-{shell.key[:8]}"
    shell.type(ECHO % ledger.encode() + b"first\n").seen(b"got-first")
    count = 0
    for _ in range(3):
        for _ in range(60):
            shell.type(b"%06d\n" % count)
            count += 1
            shell.step(0.005)
        fault(yard, host, shell)
        shell.type(b"%06d\n" % count)
        count += 1
    shell.type(b"last\n").seen(b"got-last")
    expected = ["first", *(f"{number:06}" for number in range(count)), "last"]
    assert host.read(f"{host.home}/{ledger}").split() == expected
    assert re.findall(r"got-(\w+)", shell.output.decode()) == expected
    assert shell.connections > 3 or fault is reload or fault is cut
    shell.until(lambda each: each.taken == len(each.typed), "all to be acknowledged")


def test_a_colleague_joins_and_everybody_sees_it(shell, job, client):
    other = HeldShell(client, job.run()["id"], key=shell.key).connect()
    shell.until(lambda each: len(each.viewers) == 2, "the other to be seen")
    other.type(b"echo to-$((6*7))\n")
    shell.seen(b"to-42")
    watcher = HeldShell(client, job.run()["id"], key=shell.key, watch=True).connect()
    shell.until(lambda each: [v["types"] for v in each.viewers].count(False) == 1, "the watcher to be seen")
    watcher.type(b"echo un''seen\n")
    shell.type(b"echo after-$((6*7))\n").seen(b"after-42")
    watcher.seen(b"after-42")
    assert b"unseen" not in shell.output
    other.drop()
    watcher.drop()
    shell.until(lambda each: len(each.viewers) == 1, "the others to be gone")


def is_over(shell):
    # bash may say more to the terminal when it asks for the next line.
    return b"end\r\n" in shell.output[-100:]


@pytest.mark.parametrize("watch", [True, False], ids=["that_watches", "that_types"])
@pytest.mark.slow
def test_a_viewer_that_takes_nothing_holds_up_nobody_for_long(yard, job, shell, client, watch):
    """A program waits for 10 s for somebody who types and takes nothing, and never for one who watches."""
    shell.type(b"PS1=; stty -echo; echo rea''dy\n").seen(b"ready\r\n")
    asleep = HeldShell(client, job.run()["id"], key=shell.key, watch=watch).connect()
    web = yard.processes.of("web")
    before, at, longest = rss_mb(web), len(shell.output), 0.0
    came_at = time.monotonic()
    shell.type(b"seq 1000001 2000000; echo en''d\n")
    # 9 MB.
    while not is_over(shell):
        size = len(shell.output)
        shell.step(1)
        longest = max(longest, time.monotonic() - came_at)
        came_at = time.monotonic() if len(shell.output) > size else came_at
        assert longest < 60, "nothing more comes"
    numbers = b"".join(b"%d\r\n" % number for number in range(1_000_001, 2_000_001))
    assert numbers + b"end\r\n" in shell.output[at:] and not shell.lost
    assert longest < SILENT_S - 2 if watch else longest < SILENT_S + 5
    assert rss_mb(web) - before < 24
    # Awake again it is told what it has lost, and has the newest.
    asleep.until(is_over, "the end of the output")
    assert asleep.lost and len(asleep.output) < 7_000_000
    assert asleep.output[-100_000:-1000] in shell.output
    asleep.drop()


def test_a_shell_ends_within_five_seconds_of_its_owners_login(yard, job, client):
    """Nobody is there: the web process finds it, and has the host end it."""
    token = yard.command("token", "create", "ada").stdout.strip()
    shell = HeldShell(Client(client.url, token), job.run()["id"]).connect()
    shell.type(b"echo $((6*7))-here\n").seen(b"42-here")
    shell.drop()
    before = holders(job.host())
    assert before
    [row] = yard.query("SELECT max(id) AS id FROM console_apitoken")
    yard.command("token", "revoke", str(row["id"]))
    wait_for(lambda: len(holders(job.host())) < len(before), "the shell to be gone from its host", 5.0)
    wait_for(
        lambda: yard.query(
            f"SELECT close_reason FROM jobs_shellsession WHERE key = '{shell.key}' AND closed_at IS NOT NULL"
        ),
        "its record to be closed",
    )


def holders(host):
    """The programs of shells: a holder stays for a minute after its program."""
    found = host.run_inside("ps", "-eo", "pid,args").stdout
    return [line for line in found.splitlines() if "bash -i" in line]
