"""What a person can do in a replica's shell while it trains, and until when."""

from __future__ import annotations

import hashlib
import re
import time

import pytest
from websockets.exceptions import WebSocketException

from tests.behaviour.observed_job import ObservedJob, finish, host_of
from tests.harness.wait_and_processes import wait_for

# It writes files where training code does, says who it is, and hangs in a function that a stack shows.
HANGS = """
import os, threading, time
print("uid", os.getuid(), "gid", os.getgid(), "groups", sorted(os.getgroups()), flush=True)
open("/tmp/of-training", "w").write("kept in tmp")
open("cache.txt", "w").write("kept in the work directory")
os.makedirs(os.path.expanduser("~/private"), mode=0o700, exist_ok=True)
def load_the_next_batch():
    while True:
        time.sleep(0.01)
def stuck_in_all_reduce():
    while True:
        time.sleep(0.01)
threading.Thread(target=load_the_next_batch, daemon=True).start()
print("hangs now", flush=True)
stuck_in_all_reduce()
"""
# The training process of this job, found as a person finds it.
FIND = (
    "for p in $(pgrep -f stuck_in_all_reduce); do "
    'tr "\\0" "\\n" 2>/dev/null </proc/$p/environ | grep -q "^CLOUD_ML_JOB_ID=$CLOUD_ML_JOB_ID$" && T=$p; done; '
    "echo training=${T:+found}"
)
# What a shell sets for itself, and what it has from being interactive.
OWN = re.compile(rb"^(_|PATH|PWD|OLDPWD|SHLVL|TERM|COLUMNS|LINES)=")
SHELL_ENDS_S = 5.0  # G17


class Hanging:
    """A job with web access that hangs; beside it one without web access, and one that will succeed."""

    def __init__(self, yard):
        program = ["python3", "-c", HANGS]
        self.observed = ObservedJob(
            yard,
            {"command": program, "gpus": 2, "env": {"DATASET": "a b  c"}},
            {"command": program},
            name="hangs",
            web_access=True,
        ).running()
        self.observed.wait_for_line("hangs now")
        self.run = self.observed.run()
        self.host = host_of(yard, self.run)
        self.closed = ObservedJob(yard, ["sleep", "600"], name="no web access").running()

    def shell(self, **size):
        return self.observed.yard.client.shell(self.run["id"], **size)


@pytest.fixture(scope="module")
def hanging(yard):
    hanging = Hanging(yard)
    yield hanging
    for each in (hanging.observed, hanging.closed):
        if each.state not in ("CANCELLED", "SUCCEEDED"):
            yard.client.cancel(each.id)
            each.over("CANCELLED")


@pytest.fixture
def shell(hanging):
    with hanging.shell(cols=200, rows=50) as shell:
        shell.wait_until_open()
        # Plain lines: no prompt, no echo, and no sequences of an editor.
        shell.type("stty -echo; exec bash --noediting --norc\n")
        shell.say("PS1=; echo op''en", "open")
        shell.say(FIND, "training=found")
        yield shell


def printed(shell, command):
    """Run a command and return the lines that it printed."""
    shell.type(f"{command}; echo en''d-of-it\n")
    shell.read_until("end-of-it")
    return shell.seen.partition(b"end-of-it")[0].decode(errors="replace").strip().splitlines()


def test_S3_01_S3_02_any_command_shows_what_the_log_does_not(shell, hanging):
    """Processes, /proc, a pipe line, a program of one's own."""
    assert hanging.observed.log().count("\n") == 2
    [command] = printed(shell, "tr '\\0' ' ' < /proc/$T/cmdline | head -n 1")
    assert command.endswith("python3 -c")  # the program's text begins in the next line
    assert printed(shell, "ls /proc/$T/task | wc -l") == ["2"]
    assert printed(shell, "python3 -c 'print(6 * 7)' | tr 4 5") == ["52"]
    assert printed(shell, "cat /proc/$T/status | awk '/^State/ {print $2}'")[0] in ("S", "R")


def test_S3_03_S3_40_a_shell_has_the_credentials_and_the_environment_of_the_training(shell, hanging):
    """User, groups, environment, directory and namespaces are those of the training process itself."""
    for line in ("Uid", "Gid", "Groups", "CapEff", "NoNewPrivs"):
        ours = printed(shell, f"grep ^{line} /proc/self/status")
        assert ours == printed(shell, f"grep ^{line} /proc/$T/status") != []
    said = next(line for line in hanging.observed.log().splitlines() if line.startswith("uid"))
    assert printed(shell, "echo uid $(id -u) gid $(id -g)")[0] in said
    missing = printed(shell, 'comm -z -23 <(sort -z /proc/$T/environ) <(env -0 | sort -z) | tr "\\0" "\\n"')
    assert [line for line in missing if line and not OWN.match(line.encode())] == []
    [path] = printed(shell, "tr '\\0' '\\n' </proc/$T/environ | sed -n s/^PATH=//p")
    [ours] = printed(shell, "echo $PATH")
    assert ours.startswith(f"{path}:") and ":" not in ours.removeprefix(f"{path}:"), "the tools come last"
    assert printed(shell, 'echo "$DATASET"') == ["a b  c"]
    assert printed(shell, "cd /proc/$T/cwd && pwd -P") == printed(shell, "readlink /proc/$T/cwd")
    # What the training may not do, the shell may not do: here, to read what belongs to root.
    assert printed(shell, "cat /etc/shadow >/dev/null 2>&1 || echo refused") == ["refused"]
    assert printed(shell, "stat -c %a ~/private && touch ~/private/x && echo mine") == ["700", "mine"]


def test_S3_39_files_of_the_training_are_there_in_the_shell(shell):
    assert printed(shell, "cat /tmp/of-training; echo") == ["kept in tmp"]
    assert printed(shell, "cat /proc/$T/cwd/cache.txt; echo") == ["kept in the work directory"]


@pytest.fixture
def py_spy(shell):
    """The real py-spy, which the console has brought: nobody has put it onto the host, which has no internet."""
    [place] = printed(shell, "command -v py-spy")
    assert re.fullmatch(r"/.*/\.trainyard/tools/[0-9a-f]{64}/bin/py-spy", place)
    return "py-spy"


def test_S3_30_pip_installs_py_spy_in_the_shell(shell):
    """The host has no internet. Settings that the machine of the tests has for its own pip are left out, and the
    certificates, which a test host has not, are named."""
    settings = "env -i HOME=$HOME PATH=$PATH PIP_CERT=/dev/null PIP_CONFIG_FILE=/dev/null"
    settings += ' PIP_FIND_LINKS="$PIP_FIND_LINKS"'
    install = f"{settings} python3 -m pip install --no-cache-dir --target ~/spy py-spy 2>&1"
    said = printed(shell, f"{install}; ~/spy/bin/py-spy --version")
    assert any(line.endswith("py-spy 0.4.1") for line in said), said


def test_S3_31_py_spy_dump_prints_the_stack_of_every_thread(shell, py_spy):
    said = "\n".join(printed(shell, f"{py_spy} dump --pid $T"))
    assert "stuck_in_all_reduce" in said and "load_the_next_batch" in said
    assert said.count("Thread ") == 2


def test_S3_33_py_spy_top_shows_a_live_view(shell, hanging, py_spy):
    """The screen is drawn again and again, after a change of its size too, until Ctrl-C ends it."""
    shell.type(f"{py_spy} top --idle --pid $T\n")
    shell.read_until("stuck_in_all_reduce")
    shell.read_until("stuck_in_all_reduce")
    shell.socket.send('{"resize": [120, 30]}')
    shell.read_until("stuck_in_all_reduce")
    assert b"\x1b[" in shell.seen, "it draws on the whole screen"
    shell.type("\x03")
    time.sleep(0.5)
    assert printed(shell, "stty size")[-1] == "30 120"


def test_S3_34_py_spy_record_writes_a_flame_graph_to_the_nodes_disk(shell, hanging, py_spy):
    printed(
        shell, f"{py_spy} record --idle --duration 2 --rate 20 --output ~/flame.svg --pid $T >/dev/null 2>&1"
    )
    graph = hanging.host.read(f"{hanging.host.home}/flame.svg")
    assert graph.startswith("<?xml") and "stuck_in_all_reduce" in graph


def test_S3_35_what_py_spy_wrote_can_be_fetched_for_analysis(shell, hanging, py_spy):
    """Over the console, byte for byte, from the directory in which the shell begins."""
    command = (
        f"{py_spy} record --idle --duration 1 --rate 20 --output graphs/flame.svg --pid $T >/dev/null 2>&1"
    )
    digest = printed(shell, f"mkdir -p graphs; {command}; sha256sum graphs/flame.svg")[-1].split()[0]
    client = hanging.observed.yard.client
    address = f"{client.url}/api/v1/jobs/{hanging.observed.id}/replicas/workerpool0-0/files"
    listed = client.call("GET", address, params={"path": "graphs"}).json()["files"]
    assert [entry["name"] for entry in listed] == ["flame.svg"]
    data = client.call("GET", f"{address}/content", params={"path": "graphs/flame.svg"}).content
    assert hashlib.sha256(data).hexdigest() == digest and b"stuck_in_all_reduce" in data


def test_S3_13_web_access_is_all_that_a_shell_needs(hanging, yard):
    assert set(hanging.observed.job["webAccessUris"]) == {"workerpool0-0", "workerpool1-0"}
    assert "webAccessUris" not in hanging.closed.job
    run = hanging.closed.run()
    with pytest.raises(WebSocketException), yard.client.shell(run["id"]) as refused:
        refused.wait_until_open()
    sent = hanging.observed.document["jobSpec"]
    assert sent["enableWebAccess"] is True and "enableWebAccess" not in hanging.closed.document["jobSpec"]


def test_S3_06_S3_11_a_job_that_hangs_goes_on_until_it_is_ended(hanging, yard):
    """It goes on long after it was flagged as one that seems to hang: nothing of ours ends it."""
    wait_for(
        lambda: [flag for flag in hanging.closed.ours["flags"] if flag["flag"] == "STALLED"],
        "the job to be flagged",
        timeout=240,
        dump=lambda: str(
            yard.query(
                f"SELECT sampled_at, active_at, started_at FROM jobs_run WHERE job_id = {hanging.closed.id}"
            )
        ),
    )
    time.sleep(5)
    assert hanging.observed.state == hanging.closed.state == "RUNNING"
    assert [len(replica["runs"]) for replica in hanging.observed.ours["replicas"]] == [1, 1]


def ends_within(shell, seconds):
    """Return what the socket said when it closed; fail if it was not closed in time."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            try:
                shell.receive(timeout=max(0.05, deadline - time.monotonic()))
            except TimeoutError:
                break
    except WebSocketException as closed:
        return str(closed)
    raise AssertionError(f"the shell was still open {seconds:.0f} s after its job was over")


@pytest.mark.parametrize("how", ["cancelled", "completed"])
def test_S3_23_S3_24_a_shell_ends_with_its_job_and_none_is_opened_later(yard, hanging, how):
    marker = f"finish-{how}"
    command = ["replica", "--until", f"~/{marker}", "--every", "0.2"]
    observed = ObservedJob(yard, command, name=how, web_access=True).running()
    run = observed.run()
    with yard.client.shell(run["id"]) as shell:
        shell.wait_until_open()
        shell.say("echo $((40+2))", "42")
        if how == "cancelled":
            yard.client.cancel(observed.id)
        else:
            finish(yard, marker)
        observed.over("CANCELLED" if how == "cancelled" else "SUCCEEDED")
        ends_within(shell, SHELL_ENDS_S)
    assert "webAccessUris" not in observed.job
    with pytest.raises(WebSocketException), yard.client.shell(run["id"]) as refused:
        refused.wait_until_open()
