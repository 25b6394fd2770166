"""The command line client as people use it, with Python 3.9, in a terminal, on real hosts."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest
import requests

from tests.flows.running_jobs import LongJob
from tests.harness.command_line import CommandLine
from tests.harness.product import job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

# The first replica that ends with 7 has the others stopped: none ends before each has had time for its last line.
COUNT = (
    "i=0; while [ ! -e ~/{stop} ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo last; "
    "while [ ! -e ~/{stop}-end ]; do sleep 0.05; done; exit 7"
)
LINE = re.compile(r"line (\d+)\r?$", re.MULTILINE)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return CommandLine(tmp_path_factory.mktemp("command-line"))


@pytest.fixture
def logged_in(command, yard):
    command.run("login", "--token", yard.url, stdin=yard.client.token + "\n")
    return command


class Page:
    """A browser without scripts: it sends each form with the token that the page has."""

    def __init__(self, url):
        self.url, self.session = url, requests.Session()
        self.session.trust_env = False

    def get(self, path):
        answer = self.session.get(self.url + path)
        answer.raise_for_status()
        return answer.text

    def post(self, path, fields):
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.get(path))[1]
        headers = {"Referer": self.url + path}
        sent = {**fields, "csrfmiddlewaretoken": token}
        answer = self.session.post(self.url + path, sent, headers=headers)
        answer.raise_for_status()
        return answer.text


def counting(yard, stop, replicas=1):
    pools = [{"command": ["sh", "-c", COUNT.format(stop=stop)], "gpus": 5}]
    pools += [{**pools[0], "replicas": replicas - 1}] if replicas > 1 else []
    return yard.submit(job_spec(*pools, name="count"))


def stop_counting(yard, stop, until=lambda: None):
    """Let all replicas write their last line, and end them when `until` has seen it."""
    for host in yard.fleet:
        host.write(f"{host.home}/{stop}", "")
    until()
    for host in yard.fleet:
        host.write(f"{host.home}/{stop}-end", "")


def test_a_person_logs_in_by_a_page(command, yard):
    """The code of the terminal is confirmed by somebody who is logged in, and then the terminal is."""
    page = Page(yard.url)
    page.post("/login", {"username": "ada", "password": PASSWORD, "next": ""})
    with command.terminal("login", "--no-browser", "--name", "by-page", yard.url) as terminal:
        code = terminal.until(r"Your code: .*?([A-Z]{4}-[A-Z]{4})")[1]
        where = f"/account/command-line/login?code={code}"
        assert "It was me" in page.get(where)
        page.post(where, {"code": code, "scope": "submit", "days": "7"})
        terminal.until(r"Logged in to by-page as ada\. .*scope “submit”")
        assert terminal.ended() == 0
    who = command.run("whoami", "--json", "--console", "by-page").stdout
    assert json.loads(who)["token"]["scope"] == "submit"
    command.run("logout", "by-page")
    assert "not logged in" in command.run("whoami", "--console", yard.url, check=False).stderr


def test_a_job_from_submit_to_its_exit_code(logged_in, yard, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(job_spec(["sh", "-c", "echo hello; exit 3"], name="three")))
    with logged_in.terminal("submit", "-f", tmp_path / "job.json") as terminal:
        terminal.until(r"Submitted job (\d+)")
        terminal.until("hello")
        assert terminal.ended() == 3
    job = re.search(r"Submitted job (\d+)", terminal.shown)[1]
    yard.accepted.append(int(job))
    assert logged_in.run("wait", job, check=False).returncode == 3
    assert "FAILED" in logged_in.run("jobs").stdout
    assert json.loads(logged_in.run("describe", job, "--json").stdout)["id"] == job
    assert logged_in.run("logs", job, "--plain").stdout.splitlines()[-1] == "hello"
    words = ["submit", "--wait", "--name", "short", "--no-upload", "--", "true"]
    done = logged_in.run(*words)
    yard.accepted.append(int(re.search(r"Submitted job (\d+)", done.stdout)[1]))


def test_a_command_runs_with_the_folder_that_was_uploaded(logged_in, yard, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "words.txt").write_text("brought along")
    (tmp_path / "secret.env").write_text("not for hosts")
    (tmp_path / ".trainyardignore").write_text("*.env\n")
    words = ["submit", "-f", "--", "sh", "-c", "cat pkg/words.txt; ls; exit 4"]
    with logged_in.terminal(*words, cwd=tmp_path) as terminal:
        job = terminal.until(r"Submitted job (\d+)")[1]
        yard.accepted.append(int(job))
        assert terminal.ended(timeout=180) == 4
    assert "brought along" in terminal.shown and "left out: secret.env" in terminal.shown
    assert "secret.env" not in logged_in.run("logs", job).stdout


@pytest.mark.slow
def test_the_lines_of_all_replicas_come_once_over_restarts_of_the_console(logged_in, yard):
    job = counting(yard, "stop-follow", replicas=2)
    replicas = ("workerpool0-0", "workerpool1-0")
    # The name before a line is coloured.
    last = [rf"{replica} (\x1b\[\d*m)*last\r" for replica in replicas]
    try:
        with logged_in.terminal("logs", "-f", job) as terminal:
            for _ in range(2):
                seen = len(terminal.shown)
                terminal.until(r"workerpool0-0 .*workerpool1-0 ", after=seen)
                old = yard.processes.kill("web")
                yard.processes.wait_for_new("web", old)
                terminal.until("Connected again", after=seen, timeout=120)
            stop_counting(yard, "stop-follow", until=lambda: [terminal.until(each) for each in last])
            assert terminal.ended(timeout=180) == 0
    finally:
        stop_counting(yard, "stop-follow")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown)
    for replica in replicas:
        numbers = [int(found) for found in re.findall(rf"{replica} line (\d+)", plain)]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 50, replica
        assert plain.count(f"{replica} last") == 1
    done = logged_in.run("logs", job, "--replica", "workerpool1-0").stdout.splitlines()
    assert done == [f"line {n}" for n in range(1, len(done))] + ["last"]
    assert logged_in.run("wait", job, check=False).returncode == 7


@pytest.mark.slow
def test_wait_outlives_a_restart_and_gives_the_code(logged_in, yard):
    job = counting(yard, "stop-wait")
    with logged_in.terminal("wait", job) as terminal:
        yard.client.wait(job, "RUNNING")
        terminal.until("RUNNING")
        old = yard.processes.kill("web")
        yard.processes.wait_for_new("web", old)
        stop_counting(yard, "stop-wait")
        assert terminal.ended(timeout=180) == 7
    assert logged_in.run("wait", job, "--timeout", "1", check=False).returncode == 7


def test_a_shell_with_its_size_left_and_found_again(logged_in, yard):
    job = LongJob(yard, name="shell-by-command-line", web_access=True).running()
    try:
        with logged_in.terminal("shell", job.id, "workerpool0-0", cols=91, rows=33) as terminal:
            terminal.until("leaves it")
            wait_for(terminal.is_raw, "the raw terminal")
            terminal.type("stty size; echo re''ady\r")
            terminal.until(r"33 91.*ready")
            terminal.resize(72, 20)
            wait_for(lambda: terminal.read() and sized(terminal, "20 72"), "the new size", every=0.2)
            terminal.type("export KEPT=here-it-is\r")
            old = yard.processes.kill("web")
            terminal.until("what you type waits")
            terminal.type("echo ty''ped; ")
            yard.processes.wait_for_new("web", old)
            terminal.until("Connected again", timeout=120)
            terminal.type("echo la''ter\r")
            terminal.until(r"typed\r\nlater")
            terminal.type("\x1d")
            terminal.until("The shell goes on")
            assert terminal.ended() == 0
        with logged_in.terminal("shell", job.id) as terminal:
            wait_for(terminal.is_raw, "the raw terminal")
            terminal.type("echo $KEPT; exit\r")
            terminal.until("here-it-is")
            assert terminal.ended() == 0
            assert "The shell has ended" in terminal.shown
        assert logged_in.run("shell", job.id, "--list").stdout == ""
    finally:
        job.succeeded()


def sized(terminal, size):
    begin = len(terminal.shown)
    terminal.type("stty size\r")
    end = time.monotonic() + 2
    while time.monotonic() < end and size not in terminal.shown[begin:]:
        terminal.read()
    return size in terminal.shown[begin:]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_sane_after_a_shell_that_was_killed(logged_in, yard, how):
    job = LongJob(yard, name="sane", web_access=True).running()
    try:
        with logged_in.terminal("shell", job.id) as terminal:
            wait_for(terminal.is_raw, "the raw terminal")
            os.kill(terminal.pid, how)
            terminal.ended()
            assert not terminal.is_raw()
    finally:
        job.succeeded()


@pytest.mark.slow
def test_files_go_to_the_storage_and_come_back_over_a_restart(logged_in, yard, tmp_path):
    yard.client.call("POST", f"{yard.url}/api/v1/projects/default/buckets", json={"name": "by-command-line"})
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "big.bin").write_bytes(os.urandom(1 << 20) * 96)
    (folder / "sub" / "ü x.txt").write_text("small")
    with logged_in.terminal("cp", "-r", folder, "gs://by-command-line/in/") as terminal:
        terminal.until(r"MiB of 96|Copied")
        old = yard.processes.kill("web")
        yard.processes.wait_for_new("web", old)
        terminal.until("Copied 2 files, 96.0 MiB", timeout=180)
        assert terminal.ended() == 0
    listed = logged_in.run("ls", "-r", "gs://by-command-line/").stdout.splitlines()
    assert listed == ["gs://by-command-line/in/data/big.bin", "gs://by-command-line/in/data/sub/ü x.txt"]
    found = logged_in.run("ls", "gs://by-command-line/in").stdout
    assert found == "gs://by-command-line/in/data/\n"
    assert "gs://by-command-line/" in logged_in.run("ls").stdout
    logged_in.run("cp", "-r", "gs://by-command-line/in/data", "gs://by-command-line/copy/")
    logged_in.run("cp", "-r", "gs://by-command-line/copy/data", tmp_path / "back")
    for name in ("big.bin", "sub/ü x.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    half = logged_in.run("cp", "gs://by-command-line/in/data", tmp_path, check=False)
    assert half.returncode == 2 and "-r" in half.stderr
    assert logged_in.run("rm", "-r", "--yes", "gs://by-command-line/in").stdout == "Deleted 2 objects\n"
    missing = logged_in.run("cp", "-r", "gs://by-command-line/in/none", tmp_path, check=False)
    assert missing.returncode == 1 and "There is nothing" in missing.stderr
    logged_in.run("rm", "-r", "--yes", "gs://by-command-line/copy")


@pytest.mark.slow
def test_a_study_from_a_file_to_its_best_trial(logged_in, yard, tmp_path):
    program = 'echo "{\\"step\\": 1, \\"loss\\": ${1#--x=}}" >> "$TRAINYARD_METRICS"'
    config = {
        "studySpec": {
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [{"parameterId": "x", "discreteValueSpec": {"values": [0.25, 0.5, 0.75]}}],
        },
        "trialJobSpec": job_spec(["sh", "-c", program, "trial"])["jobSpec"],
    }
    (tmp_path / "quarters.json").write_text(json.dumps(config))
    words = ["tune", tmp_path / "quarters.json", "--max-trial-count", "9", "--parallel-trial-count", "2"]
    number = re.search(r"Submitted study (\d+)", logged_in.run(*words).stdout)[1]

    def over():
        found = json.loads(logged_in.run("study", number, "--json").stdout)
        return found if found["state"].endswith(("SUCCEEDED", "FAILED")) else None

    found = wait_for(over, "the study to end", timeout=180, every=0.5)
    assert found["state"] == "JOB_STATE_SUCCEEDED" and found["displayName"] == "quarters"
    shown = logged_in.run("study").stdout
    assert re.search(r"^best +trial \d: loss=0.25 with x=0.25$", shown, re.MULTILINE)
    assert len(re.findall(r"^\d+ +SUCCEEDED ", shown, re.MULTILINE)) == 3, "the space has three points"
    assert re.search(
        rf"^{number} +quarters +SUCCEEDED +3/9 +loss=0.25", logged_in.run("studies").stdout, re.M
    )
    trial = found["trials"][0]["customJob"].rpartition("/")[2]
    assert f"quarters-trial-{found['trials'][0]['id']}" in logged_in.run("describe", trial).stdout
    assert logged_in.run("delete-study", "--yes", number).stdout == f"Deleted: {number}\n"
    assert logged_in.run("study", number, check=False).returncode == 1


def test_what_people_look_at(logged_in, yard):
    host = yard.fleet[0].name
    assert host in logged_in.run("hosts").stdout
    assert "NVIDIA_H100_80GB" in logged_in.run("gpus").stdout
    assert len(logged_in.run("gpus", host).stdout.splitlines()) == 9
    assert logged_in.run("queue").returncode == 0
    assert "running jobs" in logged_in.run("quota").stdout
    assert logged_in.run("open", "--print", "gpus").stdout.strip() == f"{yard.url}/hosts/gpus"
    job = counting(yard, "stop-look")
    try:
        yard.client.wait(job, "RUNNING")
        assert str(job) in logged_in.run("jobs", "--mine", "--state", "active").stdout
        assert logged_in.run("cancel", job).stdout == f"Cancelled: {job}\n"
        assert logged_in.run("wait", job, check=False).returncode == 130
        assert "CANCELLED" in logged_in.run("events", job).stdout
        again = re.search(r"job (\d+)", logged_in.run("rerun", job).stdout)[1]
        yard.accepted.append(int(again))
        logged_in.run("cancel", again)
        assert logged_in.run("wait", again, check=False).returncode == 130
        refused = logged_in.run("cancel", again, check=False)
        assert refused.returncode == 1 and again in refused.stderr
    finally:
        stop_counting(yard, "stop-look")
