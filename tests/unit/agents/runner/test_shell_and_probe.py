"""Shells, the probe, and every Python that a host may have."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.runner.host.probe import filesystem_type, probe_shared, probe_sshd, read_mounts
from agents.runner.linux import boot_id
from agents.runner.programs import output_of
from agents.runner.wire import SHELL_PREFACE
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER, Host, wait_for
from tests.unit.agents.runner.shell_client import ShellClient


def test_a_shell_opens_in_the_directory_and_environment_of_the_run(console, host):
    console.start("r1", ["sh", "-c", "echo up; exec sleep 600"], env={"SECRET": "s3cr3t"}, web_access=True)
    console.text("r1", "up")
    console.running("r1")
    client = ShellClient(host, env={"EXTRA": "more"}, settings={"keep_s": 0})
    client.type(b"echo $SECRET-$TRAINYARD_RUN-$EXTRA-$((1+1)) main=$TRAINYARD_PID tmp=$TMPDIR=; pwd\n")
    client.type(b"grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; stty -a\n")
    text = client.seen(b"-iuclc").decode()
    facts = host.facts("r1")
    assert f"s3cr3t-r1-more-2 main={facts['pid']} tmp={facts['tmp']}=\r\n" in text
    assert Path(f"/proc/{facts['pid']}/cmdline").read_bytes() == b"sleep\x00600\x00", (
        "the program, not a shell"
    )
    assert str(host.run_dir("r1") / "work").split("\n")[0] in text
    # Python ignores SIGPIPE; a program here must not, or `yes | head` complains.
    # Signals above 31 are the C library's own, which no program may set.
    ignored, blocked = (re.search(rf"{word}:\s+([0-9a-f]+)\r\n", text) for word in ("SigIgn", "SigBlk"))
    assert ignored and int(ignored[1], 16) & 0x7FFFFFFF == 0
    assert blocked and int(blocked[1], 16) == 0
    # The terminal echoes, edits lines, and turns ^C into a signal.
    settings = text[text.index("speed") :]
    assert not set(re.findall(r"(?<!\S)-(\w+)", settings)) & {
        "echo",
        "icanon",
        "isig",
        "opost",
        "onlcr",
        "icrnl",
        "iutf8",
    }
    console.stop("r1")
    console.closed("r1")
    client.until(lambda: client.end, "the end of the shell")
    client.drop()


def test_a_shell_sees_the_gpus_of_its_run_by_the_same_numbers(host, smi):
    console = host.connect()
    console.hello()
    second = "GPU-ed0c3757-0000-4000-8000-000000000001"
    console.start("r1", ["sleep", "600"], web_access=True, gpus=[second])
    console.running("r1")
    client = ShellClient(host, settings={"keep_s": 0})
    client.type(b"echo gpus=$CUDA_VISIBLE_DEVICES=$TRAINYARD_GPU_UUIDS=e''nd\n")
    assert f"gpus=1={second}=end".encode() in client.seen(b"=end\r\n")
    console.stop("r1")
    console.closed("r1")
    client.drop()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"run": "r1", "shell": "k", "new": {"keep_s": 0}}, "deployment"),
        ({"deployment": "../x", "run": "r1", "shell": "k", "new": {"keep_s": 0}}, "deployment"),
        ({"deployment": "dep", "run": "../r1", "shell": "k", "new": {"keep_s": 0}}, "run id"),
        ({"deployment": "dep", "run": "r9", "shell": "k", "new": {"keep_s": 0}}, "not running"),
        ({"deployment": "dep", "run": "closed", "shell": "k", "new": {"keep_s": 0}}, "not running"),
        ({"deployment": "dep", "run": "no-shells", "shell": "k", "new": {"keep_s": 0}}, "does not allow"),
        ({"deployment": "dep", "run": "r1"}, "shell"),
        ([], "object"),
    ],
)
def test_a_shell_is_refused_for_a_run_that_has_none(console, host, request_, words):
    console.start("closed", ["true"], web_access=True)
    console.closed("closed")
    console.start("no-shells", ["sleep", "600"])
    console.running("no-shells")
    done = subprocess.run(
        [PYTHON, str(RUNNER), "shell"], input=json.dumps(request_).encode() + b"\n", env=host.env,
        stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout[len(SHELL_PREFACE) :])
    assert words in answer["error"] and done.returncode == 1


ASKED = """#!/bin/sh
test "$2" = "--format=csv,noheader,nounits" || exit 2
test "$1" = "--query-gpu=index,uuid,name,memory.total,utilization.gpu,mig.mode.current" || exit 2
"""
# As some drivers do it: an error line for the lost card, and the others are listed.
LOST = (
    ASKED
    + """
echo "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error"
echo "0, GPU-aaaa-1, NVIDIA A100-SXM4-80GB, 81920, 0, Disabled"
echo "2, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]"
"""
)
ILL = (
    ASKED
    + """
echo "0, GPU-aaaa-1, NVIDIA A100-SXM4-80GB, 81920, [N/A], Enabled"
echo "1, GPU-aaaa-2, NVIDIA A100-SXM4-80GB, 81920, [GPU requires reset], Disabled"
echo "2, GPU-aaaa-3, NVIDIA A100-SXM4-80GB, [GPU is lost], [GPU is lost], [GPU is lost]"
echo "3, GPU-aaaa-4, NVIDIA A100-SXM4-80GB, 81920, 7, Disabled"
"""
)
SMI = (
    ASKED
    + """
echo "0, GPU-aaaa-1, NVIDIA H100 80GB HBM3, 81559, 3, Disabled"
echo "1, GPU-aaaa-2, NVIDIA H100 80GB HBM3, [N/A], [Not Supported], [N/A]"
"""
)
OLD = """#!/bin/sh
case $1 in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;; esac
test "$1 $2" = "--query-gpu=index,uuid,name,memory.total --format=csv,noheader,nounits" || exit 2
echo "0, GPU-aaaa-1, Tesla P100-PCIE-16GB, 16280"
"""


@pytest.mark.parametrize(
    ("script", "gpus", "out", "error"),
    [
        (SMI, [("GPU-aaaa-1", 81559), ("GPU-aaaa-2", 0)], [], None),
        (
            "#!/bin/sh\necho 'has failed because it could not communicate with the driver'; exit 9\n",
            [],
            [],
            "driver",
        ),
        (OLD, [("GPU-aaaa-1", 16280)], [], None),
        (LOST, [("GPU-aaaa-1", 81920)], [(None, "", "lost"), (2, "", "lost")], None),
        (
            ILL,
            [("GPU-aaaa-4", 81920)],
            [(0, "GPU-aaaa-1", "mig"), (1, "GPU-aaaa-2", "reset"), (2, "GPU-aaaa-3", "lost")],
            None,
        ),
        (LOST + "exit 15\n", [], [], "device handle for GPU1"),
        ("#!/bin/sh\necho No devices were found; exit 6\n", [], [], "No devices were found"),
        (None, [], [], None),
    ],
)
def test_the_probe_reports_what_the_host_is(host, tmp_path, script, gpus, out, error):
    tools = tmp_path / "tools"
    tools.mkdir()
    if script:
        (tools / "nvidia-smi").write_text(script)
        (tools / "nvidia-smi").chmod(0o755)
    (tools / "podman").write_text("#!/bin/sh\necho podman version 4.9.3\n")
    (tools / "podman").chmod(0o755)
    env = {**host.env, "PATH": f"{tools}:/usr/bin:/bin"}
    done = subprocess.run(
        [PYTHON, str(RUNNER), "probe"], env=env, stdout=subprocess.PIPE, check=True, timeout=90
    )
    found = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1 and found["schema"] == 1
    assert [(gpu["uuid"], gpu["memory_mb"]) for gpu in found["gpus"]] == gpus
    assert [(card["index"], card["uuid"], card["why"]) for card in found["gpus_out"]] == out
    assert found["nvidia_smi"] is bool(script)
    assert (error is None) == (found["gpu_error"] is None) and (error or "") in (found["gpu_error"] or "")
    assert {"name": "podman", "version": "4.9.3"} in found["runtimes"]
    assert found["boot_id"] == boot_id() and found["uid"] == os.getuid()
    assert found["cpus"] >= 1 and found["memory_mb"] > 100 and abs(found["wall"] - time.time()) < 60
    assert found["disk"]["writable"] and found["disk"]["free_mb"] > 0
    assert found["containment"] in ("cgroup", "subreaper")
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    assert found["ptrace_scope"] == (int(scope.read_text()) if scope.exists() else 0)


def test_a_program_that_hangs_does_not_hang_the_probe():
    began = time.monotonic()
    status, words = output_of(["sleep", "600"], timeout=0.2)
    assert status == 124 and "did not answer" in words and time.monotonic() - began < 60


def test_file_systems_and_sshd_limits_are_reported(tmp_path):
    assert filesystem_type("/proc") == "proc"
    assert filesystem_type("/proc/self/../1/..") == "proc"
    assert probe_sshd(str(tmp_path)) == {"max_sessions": None, "max_startups": None}
    (tmp_path / "sshd_config").write_text("Include x\nMaxSessions 3 # few\nMatch User a\nMaxStartups 1\n")
    assert probe_sshd(str(tmp_path)) == {"max_sessions": 3, "max_startups": "10:30:100"}
    (tmp_path / "sshd_config.d").mkdir()
    (tmp_path / "sshd_config.d" / "a.conf").write_text("maxsessions=2\nMaxStartups 5:50:9\n")
    assert probe_sshd(str(tmp_path)) == {"max_sessions": 2, "max_startups": "5:50:9"}


MOUNTS = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 / /mnt/nfs rw - nfs4 filer:/export rw
23 21 0:40 /team /data\\040set rw - nfs4 filer:/export/team rw
24 21 8:1 /srv/out /out rw - ext4 /dev/sda1 rw
25 22 8:2 / /mnt/nfs/scratch rw - ext4 /dev/sdb1 rw
26 21 0:41 / /old/deep rw - nfs4 filer:/hidden rw
27 21 8:3 / /old rw - ext4 /dev/sdc1 rw
28 21 0:42 / /twice rw - nfs4 filer:/under rw
29 28 8:4 / /twice rw - ext4 /dev/sdd1 rw
30 21 0:5 /proc /proc/sys rw - proc proc rw
31 21 0:60 /@home /home rw - btrfs /dev/sde1 rw
nonsense
"""


def test_shared_storage_is_reported_and_hidden_mounts_are_not():
    """A bind mount is reported with the disk it is a part of; a mount that a later one hides is not reachable."""
    told = {each["path"]: each for each in probe_shared(read_mounts(MOUNTS.splitlines()))}
    assert set(told) == {"/mnt/nfs", "/data set", "/out", "/mnt/nfs/scratch"}
    assert [each["network"] for each in told.values()] == [True, True, False, False]
    assert (told["/out"]["root"], told["/out"]["device"]) == ("/srv/out", "8:1")
    assert told["/data set"]["source"] == "filer:/export/team"


def test_a_runner_whose_file_was_deleted_works_on(host, tmp_path):
    """The file is deleted, or replaced on a damaged disk, while a serve still works from it for months."""
    program = tmp_path / "runner.pyz"
    shutil.copy(RUNNER, program)
    host.runner = program
    console = host.connect()
    sha = console.hello()["sha"]
    program.unlink()
    assert sha == hashlib.sha256(RUNNER.read_bytes()).hexdigest()
    console.start("r1", ["sh", "-c", "echo up; sleep 600"], work_key="w", timeout_s=3600)
    console.start("r2", ["no-such-program"])
    assert console.closed("r2")["refusal"] == "exec_failed"
    console.text("r1", "up")
    console.hear("sample", lambda m: m["run"] == "r1")
    for pid in host.keepers("r1"):
        os.kill(pid, signal.SIGKILL)
    assert console.closed("r1")["why"] == "lost"
    assert console.ended_log("r1")[0] == b"up\n"
    console.say("watch", gpus=["GPU-none"])
    console.hear("gpus")
    work = host.home / ".trainyard/dep/work/w"
    os.utime(work, (0, 0))
    for run in ("r1", "r2"):
        console.say("forget", run=run)
        console.hear("forgotten", lambda m, run=run: m["run"] == run)
    console.stop("never")
    assert console.closed("never")["why"] == "tombstone"
    wait_for(lambda: work.stat().st_mtime > 0, "the time of the work directory to be noted")
    wait_for(lambda: not list(work.parent.parent.glob("trash/*")), "an empty trash")
    console.start("r3", ["sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"])
    console.text("r3", "up")
    console.stop("r3", 30)
    assert console.closed("r3")["exit_code"] == 7
    assert [path.name for path in host.home.rglob("keeper.err")] == []


def other_pythons():
    """The oldest and the newest other Python on this machine; always this one too."""
    found = {}
    for path in [*Path.home().glob(".pyenv/versions/*/bin/python3"), Path("/usr/bin/python3")]:
        if not path.exists():
            continue
        probe = [str(path), "-c", "import sys; print(*sys.version_info[:2])"]
        words = subprocess.run(probe, stdout=subprocess.PIPE, check=False).stdout.split()
        version = tuple(int(word) for word in words)
        if version >= (3, 7):
            found[version] = str(path)
    return [sys.executable, *(found[v] for v in sorted({min(found), max(found)} if found else ()))]


@pytest.mark.parametrize("python", other_pythons())
def test_the_whole_life_of_a_run_on_every_python(tmp_path, python):
    host = Host(tmp_path)
    host.python = python
    try:
        console = host.connect()
        greeting = console.hello()
        assert greeting["v"] == 1 and greeting["sha"] == hashlib.sha256(RUNNER.read_bytes()).hexdigest()
        console.start(
            "r1", ["sh", "-c", "echo up; trap 'exit 3' TERM; while :; do sleep 0.05; done"], timeout_s=3600
        )
        console.start("r2", ["no-such-program"])
        assert console.closed("r2")["refusal"] == "exec_failed"
        console.text("r1", "up")
        os.kill(host.keepers("r1")[1], 9)
        console.stop("r1", 30)
        facts = console.closed("r1")
        assert (facts["exit_code"], facts["why"]) == (3, "stop")
        assert console.ended_log("r1")[1].startswith("sha256:")
        console.say("forget", run="r1")
        console.hear("forgotten")
        probe = subprocess.run(
            [python, str(RUNNER), "probe"], env=host.env, stdout=subprocess.PIPE, check=True, timeout=90
        )
        assert json.loads(probe.stdout)["python"] == greeting["python"]
    finally:
        host.clean()
