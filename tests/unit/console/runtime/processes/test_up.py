"""`trainyard up` with the real command and its real processes, which are also killed."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest
import redis
import requests

from tests.harness.product import Product
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import process_alive, wait_for

ROLES = ("web", "worker", "dispatcher", "beat", "broker", "watchdog")
LINK = re.compile(r"^Set up your account: (http://\S+/setup/\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def product():
    with Product("embedded", forked=False) as product:
        yield product


def health(product):
    return requests.get(f"{product.url}/healthz", timeout=30).json()


def is_well(product):
    try:
        return health(product)["status"] == "ok"
    except requests.RequestException:
        return False


def test_up_prints_its_address_and_the_setup_link(product):
    said = product.output.read_text()
    assert re.search(rf"^Trainyard is ready at {re.escape(product.url)}$", said, re.MULTILINE)
    (link,) = LINK.findall(said)
    assert link.startswith(product.url)
    assert requests.get(link, timeout=30).status_code == 200
    assert requests.get(link + "x", timeout=30).status_code == 404
    wait_for(lambda: is_well(product), "everything to be well", dump=product.tail)


def test_the_process_that_forks_has_no_other_thread(product):
    """A lock that another thread holds would stay locked in the child for ever."""
    assert [path.name for path in Path(f"/proc/{product.up.pid}/task").iterdir()] == [str(product.up.pid)]


def test_processes_share_the_memory_of_what_they_loaded(product):
    """Each of them has loaded 80 MB and more."""
    for role in ("web", "worker", "dispatcher", "beat"):
        (pid,) = product.processes.of(role)
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        own, loaded = (
            int(re.search(rf"^{what}:\s+(\d+)", rollup, re.MULTILINE)[1]) for what in ("Pss", "Rss")
        )
        assert own < 0.75 * loaded, role


def test_a_second_up_on_the_same_data_is_refused(product):
    done = product.command("up", check=False)
    assert done.returncode == 1
    assert f"already runs on {product.data}" in done.stderr and product.url in done.stderr
    assert "--data DIR" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_data_directory_that_others_could_read_is_closed(product, tmp_path):
    """As systemd makes it: 755. And what every process writes from then on is closed too."""
    for pid in product.processes.all():
        assert re.search(r"^Umask:\t0077$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE), pid
    data = tmp_path / "state"
    data.mkdir(mode=0o755)
    assert product.command("user", "list", "--data", str(data)).returncode == 0
    found = {path.name: oct(path.stat().st_mode & 0o777) for path in [data, *data.glob("*.sqlite3*")]}
    assert found.pop("state") == "0o700" and found and set(found.values()) == {"0o600"}
    for path in [data, *data.glob("*.sqlite3*")]:
        path.chmod(0o755 if path == data else 0o644)
    product.command("user", "list", "--data", str(data))
    assert not [path for path in [data, *data.glob("*.sqlite3*")] if path.stat().st_mode & 0o077]


def test_a_used_port_is_reported_with_the_cure(product, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = product.command(
            "up", "--data", str(tmp_path), "--port", str(other.getsockname()[1]), check=False
        )
    assert done.returncode == 1
    assert "cannot be opened" in done.stderr and "--port or TRAINYARD_PORT" in done.stderr


def test_the_command_line_works_while_it_runs(product):
    add = ("user", "add", "ada", "--admin", "--password-stdin")
    _, listed = product.commands(add, ("user", "list"), stdin=PASSWORD + "\n")
    assert listed == "ada\tadmin\tdefault:admin\n"


def test_every_process_that_is_killed_comes_back(product):
    old = [pid for role in ROLES for pid in product.processes.kill(role)]
    for role in ROLES:
        product.processes.wait_for_new(role, old)
    sweeps = "SELECT at FROM jobs_tick WHERE name = 'sweep'"
    before = product.query(sweeps)
    wait_for(lambda: product.query(sweeps) != before, "the sweep to go on", dump=product.tail)
    wait_for(lambda: is_well(product), "everything to be well again", dump=product.tail)
    assert product.output.read_text().count("was killed by signal 9; starting it again") == len(ROLES)


def test_a_dispatcher_that_is_started_again_has_its_old_name(product):
    """So that it has its leases at once, and takes the hints that wait in its own queue."""
    beats = "SELECT name, seen_at FROM agents_dispatcher ORDER BY seen_at"
    old = product.processes.kill("dispatcher")
    before = product.query(beats)[-1]
    product.processes.wait_for_new("dispatcher", old)
    wait_for(lambda: product.query(beats)[-1]["seen_at"] > before["seen_at"], "a new beat", dump=product.tail)
    assert product.query(beats)[-1]["name"] == before["name"]


def test_each_queue_answers_the_echo(product):
    """The watchdog's echo passes through the queue of the worker and of the dispatcher and comes back."""
    path = product.data / "broker" / "redis.sock"
    assert path.is_socket()
    for name in ("worker", "dispatcher"):
        wait_for(lambda name=name: echo(path, name), f"an echo of the {name}", dump=product.tail)


def echo(path, name):
    with redis.Redis(unix_socket_path=str(path)) as client:
        return client.get(f"trainyard:echo:{name}")


def test_ctrl_c_stops_everything_and_the_next_start_asks_for_no_setup(product):
    pids = product.processes.all()
    assert len(pids) >= 7
    product.up.send_signal(signal.SIGINT)
    assert product.up.wait(60) == 0
    assert not [pid for pid in pids if process_alive(pid)]
    assert product.tail().endswith("Trainyard has stopped.\n")
    before = product.output.stat().st_size
    product.start()
    assert not LINK.findall(product.output.read_text()[before:])


def test_nothing_outlives_an_up_that_was_killed(product):
    pids = product.processes.all()
    product.up.kill()
    product.up.wait()
    wait_for(lambda: not any(process_alive(pid) for pid in pids), "all its processes to follow")
    product.start()  # the data directory is free again
    assert product.command("token", "create", "ada").stdout
