"""The test hosts of the harness behave as real hosts do."""

from __future__ import annotations

import os
import select
import subprocess

import pytest

from tests.harness.wait_and_processes import wait_for

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def test_a_host_takes_logins_by_key_and_has_gpus(fleet):
    for each in fleet:
        each.write(f"{each.home}/name", each.name)
    assert [each.ssh("cat name").stdout for each in fleet] == [each.name for each in fleet]
    uuids = [uuid for each in fleet for uuid in each.gpu_uuids()]
    assert len(set(uuids)) == 24
    query = "nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits -i 3"
    assert fleet[0].ssh(query).stdout == "3, 81559\n"


def test_an_unknown_key_is_refused_until_it_is_authorized(host, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    line = (tmp_path / "key.pub").read_text()
    words = host.ssh_command("true")
    words[words.index("-i") + 1] = str(tmp_path / "key")
    assert subprocess.run(words, capture_output=True).returncode == 255
    host.authorize(line)
    assert subprocess.run(words, capture_output=True).returncode == 0
    host.revoke(line)
    assert subprocess.run(words, capture_output=True).returncode == 255


@pytest.mark.needs_namespaces
@pytest.mark.parametrize("hard", [True, False])
def test_a_reboot_keeps_the_disk_and_nothing_else(host, hard):
    before = host.ssh(
        f"{BOOT_ID}; echo kept > note; echo gone > /tmp/note; MARK=rebooted setsid -f sleep 1000 > /dev/null 2>&1"
    ).stdout
    wait_for(lambda: host.processes("MARK=rebooted"), "the process to be seen")
    host.reboot(hard)
    after = host.ssh(f"{BOOT_ID}; cat note; ls /tmp").stdout.split()
    assert after[0] != before.strip() and after[1:] == ["kept"]
    assert host.processes("MARK=rebooted") == []


def talk(host):
    """A session that prints a number ten times a second."""
    command = host.ssh_command("n=0; while sleep .1; do n=$((n+1)); echo $n; done")
    return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)


def quiet_for(session, seconds):
    ready, _, _ = select.select([session.stdout], [], [], seconds)
    return not ready or not os.read(session.stdout.fileno(), 4096)


@pytest.mark.parametrize(("down", "up"), [("cut", "restore"), ("blackhole", "heal")])
def test_a_session_survives_a_short_outage(host, down, up):
    session = talk(host)
    try:
        assert session.stdout.readline() == b"1\n"
        getattr(host, down)()
        wait_for(lambda: quiet_for(session, 0.5), "the session to be quiet")
        getattr(host, up)()
        numbers = [int(session.stdout.readline()) for _ in range(5)]
        assert numbers == list(range(numbers[0], numbers[0] + 5))
    finally:
        session.kill()
        session.wait()
        session.stdout.close()


@pytest.mark.needs_namespaces
def test_a_full_disk_is_full_until_it_is_freed(host):
    host.fill_disk()
    try:
        assert "No space left" in host.ssh("echo word > note2", check=False).stderr
        assert host.ssh("echo still > /tmp/elsewhere && cat /tmp/elsewhere").stdout == "still\n"
    finally:
        host.free_disk()
    assert host.ssh("echo word > note2 && cat note2").stdout == "word\n"


def test_a_new_host_key_and_other_sshd_settings_take_effect(host):
    before = host.fingerprint()
    old_line = host.host_key_line
    host.new_host_key()
    assert host.fingerprint() != before and host.ssh("true").returncode == 0
    assert old_line != host.host_key_line
    host.sshd_config("ForceCommand echo forced")
    assert host.ssh("echo asked").stdout == "forced\n"
    host.sshd_config("")
    assert host.ssh("echo asked").stdout == "asked\n"


def test_a_replica_keeps_a_ledger_that_matches_its_output(host):
    environment = "TRAINYARD_RUN=ledger-test TRAINYARD_GPU_UUIDS=GPU-a,GPU-b"
    printed = host.ssh(f"{environment} replica --seconds 0.3 --exit 7", check=False)
    assert printed.returncode == 7
    lines = [line for line in host.ledger_lines() if line["run"] == "ledger-test"]
    assert [line["event"] for line in lines][:: len(lines) - 1] == ["start", "end"]
    assert lines[0]["gpus"] == ["GPU-a", "GPU-b"] and lines[-1]["out"] == len(printed.stdout)


def test_nvidia_smi_fails_as_configured(host):
    host.gpus(fail="driver")
    try:
        assert "couldn't communicate with the NVIDIA driver" in host.ssh("nvidia-smi; echo rc $?").stdout
    finally:
        host.gpus(fail=None)
    host.gpus(apps=[{"gpu": 2, "pid": 4711, "name": "python3", "memory_mb": 700}])
    try:
        rows = host.ssh(
            "nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader"
        ).stdout
        assert rows == f"4711, {host.gpu_uuids()[2]}, 700 MiB\n"
    finally:
        host.gpus(apps=[])
