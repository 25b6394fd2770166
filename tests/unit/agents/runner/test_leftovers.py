"""What a run leaves outside its directory: temporary files, and shared memory, are removed; nobody else's is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.runner.files import delete_tree
from agents.runner.linux import libc
from agents.runner.runs import cleanup
from agents.runner.runs import scratch as scratches
from agents.runner.runs import shared_memory as sweeping
from agents.runner.runs.cleanup import Cleanup, empty_trash
from agents.runner.runs.facts import new_facts, save_facts
from agents.runner.runs.lifecycle import RunLifecycle
from tests.unit.agents.runner.protocol_client import PACKAGE, command, wait_for

SHM = Path("/dev/shm")
# As a trainer that is killed: no clean-up of its own, and the process lives a while after it made the segment.
MAKES = (
    "import mmap, os, sys, time",
    "fd = os.open('/dev/shm/' + sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)",
    "os.ftruncate(fd, 1 << 20)",
    "page = mmap.mmap(fd, 1 << 20)",
    "page[:] = b'x' * (1 << 20)",
    "os.close(fd)",
    "print('made', flush=True)",
)


def makes(name, *rest):
    return [*command(*MAKES, *rest), name]


@pytest.fixture
def name(request):
    name = f"trainyard-test-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    for path in SHM.glob(name + "*"):
        path.unlink()


def test_each_run_has_a_directory_for_temporary_files_that_is_deleted_with_all_in_it(console):
    script = 'stat -c "%a %U" "$TMPDIR"; mkdir "$TMPDIR/a"; touch "$TMPDIR/a/b"; echo "$TMPDIR"'
    console.start("r1", ["sh", "-c", script])
    console.start("r2", ["sh", "-c", script])
    places = []
    for run in ("r1", "r2"):
        console.closed(run)
        mode, place = console.ended_log(run)[0].decode().splitlines()
        assert mode.startswith("700 ") and len(place) < 70, "programs make sockets in it"
        places.append(Path(place))
    assert places[0] != places[1]
    wait_for(lambda: not any(place.exists() for place in places), "their end")


def test_a_program_finds_its_temporary_files_there_and_a_shell_too(console, host):
    console.start("r1", command("import tempfile, time", "print(tempfile.gettempdir())", "time.sleep(60)"))
    place = console.text("r1", "\n").strip()
    assert place == host.facts("r1")["tmp"] and Path(place).is_dir()
    console.stop("r1", 0)
    console.closed("r1")


def test_a_jobs_own_value_wins(console, tmp_path):
    console.start("r1", ["sh", "-c", "echo $TMPDIR"], env={"TMPDIR": str(tmp_path)})
    console.closed("r1")
    assert console.ended_log("r1")[0].decode().strip() == str(tmp_path)


def test_temporary_files_of_a_run_whose_keepers_were_killed_are_deleted(console, host):
    console.start("r1", ["sh", "-c", "touch $TMPDIR/left; echo made; sleep 100"])
    console.text("r1", "made")
    place = Path(host.facts("r1")["tmp"])
    for pid in host.keepers("r1"):
        os.kill(pid, 9)
    console.drop()
    again = host.connect()
    again.hello()
    again.closed("r1")
    wait_for(lambda: not place.exists(), "the end of its temporary files")


# As the login of a host, who may not write into a directory without `w`; root may.
LEAVES_READ_ONLY = (
    "import json, os, sys",
    "from agents.runner.runs.cleanup import empty_trash",
    "from agents.runner.runs.facts import new_facts, save_facts",
    "if os.getuid() == 0:",
    "    os.setgroups([]), os.setgid(65534), os.setuid(65534)",
    "base = sys.argv[1]",
    "scratch, trash = os.path.join(base, 'trainyard-abc'), os.path.join(base, 'trash')",
    "for path in (scratch, trash + '/run/work', trash + '/work'):",
    "    os.makedirs(path + '/module/inner')",
    "    open(path + '/module/inner/file', 'w').close()",
    "    os.chmod(path + '/module/inner', 0o555)",
    "    os.chmod(path + '/module', 0)",
    "    os.chmod(path, 0o555)",
    "save_facts(trash + '/run', dict(new_facts('r1'), mark='abc:r1', tmp=scratch, phase='closed'))",
    "print(json.dumps([empty_trash(trash), os.listdir(trash), os.path.exists(scratch)]))",
)


def test_read_only_directories_of_a_run_are_deleted_too():
    base = tempfile.mkdtemp(dir="/tmp")
    argv = [sys.executable, "-c", "\n".join(LEAVES_READ_ONLY), base]
    if os.getuid() == 0:
        os.chown(base, 65534, 65534)
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, cwd=PACKAGE.parents[1], timeout=60)
    finally:
        delete_tree(base)
    assert json.loads(done.stdout) == [[], [], False]


def test_what_cannot_be_deleted_is_told_and_its_facts_are_kept(tmp_path, monkeypatch):
    scratch, trash = tmp_path / "trainyard-abc", tmp_path / "trash"
    home = SimpleNamespace(trash=str(trash), run=lambda name: str(trash / name))
    for path in (scratch, trash / "run" / "logs", trash / "work"):
        path.mkdir(parents=True)
        (path / "file").write_text("x")
    facts = {**new_facts("r1"), "mark": "abc:r1", "tmp": str(scratch), "phase": "closed"}
    save_facts(str(trash / "run"), facts)
    sent = []
    found = Cleanup(SimpleNamespace(home=home), SimpleNamespace(send=sent.append), None)

    def sweep():
        before = len(sent)
        found.end_trash(empty_trash(home.trash))
        return [message["message"] for message in sent[before:]]

    mounted = {str(scratch), str(trash / "work")}
    for where in (cleanup, scratches):
        monkeypatch.setattr(where, "delete_tree", lambda path: path not in mounted and delete_tree(path))
    words = f"temporary files in {scratch} could not be removed"
    assert set(sweep()) == {words, f"{trash / 'work'} could not be removed"}
    assert [path.name for path in (trash / "run").iterdir()] == ["facts.json"], (
        "the log needs no room any more"
    )
    assert sweep() == [], "it is told once"
    run = SimpleNamespace(facts=facts, save=lambda: sent.append("saved"))
    RunLifecycle.remove_scratch(run)
    assert facts["message"] == words and sent[-1] == "saved"
    mounted.clear()
    assert sweep() == [] and not list(trash.iterdir()) and not scratch.exists()


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 9)", "pass", "time.sleep(100)"])
def test_shared_memory_that_a_run_left_is_removed_and_told(console, name, end):
    console.start("r1", makes(name, "time.sleep(0.5)", end))
    console.text("r1", "made")
    if "100" in end:
        console.stop("r1", 0)
    facts = console.closed("r1")
    assert not (SHM / name).exists()
    assert facts["message"] == f"what it left was removed: 1 file in /dev/shm ({name}); 1.0 MB"


def test_a_file_that_a_run_makes_anew_is_its_own(console, host, name):
    """Also if there was one of that name before, whosever it was."""
    (SHM / name).touch()
    remove = f"os.unlink('/dev/shm/{name}')"
    console.start("r1", [*command("import os", remove, *MAKES, "time.sleep(100)"), name])
    note = host.run_dir("r1") / "shared.json"
    wait_for(lambda: note.exists() and name in note.read_text(), "the note")
    console.stop("r1", 0)
    assert console.closed("r1")["message"] == f"what it left was removed: 1 file in /dev/shm ({name}); 1.0 MB"


def test_what_somebody_else_made_or_still_uses_is_left_alone(console, name):
    """A person of the login, another run, and a file that was there before: only the run's own goes."""
    (SHM / f"{name}-before").write_bytes(b"data")
    console.start("other", makes(f"{name}-other", "time.sleep(100)"))
    console.text("other", "made")
    console.start("r1", makes(f"{name}-own", f"open('/dev/shm/{name}-before').read()", "time.sleep(100)"))
    console.text("r1", "made")
    (SHM / f"{name}-mine").write_bytes(b"data")
    theirs = shared_memory.SharedMemory(name=f"{name}-held", create=True, size=4096)
    try:
        time.sleep(0.5)
        console.stop("r1", 0)
        facts = console.closed("r1")
        left = {path.name.removeprefix(name) for path in SHM.glob(name + "*")}
        assert left == {"-before", "-other", "-mine", "-held"} and f"{name}-own" in facts["message"]
    finally:
        theirs.close()
        theirs.unlink()
    console.stop("other", 0)
    console.closed("other")
    assert not (SHM / f"{name}-other").exists()


def test_what_another_process_still_uses_stays(console, name):
    console.start("r1", makes(name, "time.sleep(100)"))
    console.text("r1", "made")
    time.sleep(0.3)
    ours = shared_memory.SharedMemory(name=name)
    resource_tracker.unregister("/" + name, "shared_memory")
    console.stop("r1", 0)
    facts = console.closed("r1")
    assert (SHM / name).exists() and facts["message"] == ""
    ours.close()


def test_the_second_keeper_removes_what_the_first_one_saw(console, host, name):
    console.start("r1", makes(name, "time.sleep(100)"))
    console.text("r1", "made")
    note = host.run_dir("r1") / "shared.json"
    wait_for(lambda: note.exists() and name in note.read_text(), "the note")
    os.kill(host.keepers("r1")[1], 9)
    console.stop("r1", 0)
    console.closed("r1")
    assert not (SHM / name).exists()


SYSV = (
    "import ctypes, sys, time",
    "c = ctypes.CDLL(None)",
    "c.shmat.restype = ctypes.c_void_p",
    "n = c.shmget(0, ctypes.c_size_t(8192), 0o1600)",
    "c.shmat(n, None, 0)",
    "print('segment', n, flush=True)",
)


def test_a_segment_of_system_v_that_a_run_left_is_removed(console):
    ours = libc.shmget(0, 4096, 0o1600)
    try:
        console.start("r1", command(*SYSV))
        facts = console.closed("r1")
        made = int(console.ended_log("r1")[0].split()[1])
        there = {each.shmid for each in sweeping.segments()}
        assert made not in there and ours in there
        assert facts["message"] == "what it left was removed: 1 segment of shared memory; 0.0 MB"
    finally:
        libc.shmctl(ours, 0, None)


def test_a_note_that_a_replica_forged_removes_nothing_of_others(tmp_path, name):
    """It names files by inode: another file of that name, a link or a directory stays."""
    (SHM / name).write_bytes(b"data")
    inode = (SHM / name).stat().st_ino
    for files in ({name: inode + 1}, {"../../tmp": 1}, {name: True}, {name: None}, [name]):
        (tmp_path / "shared.json").write_text(json.dumps({"files": files, "segments": "nonsense"}))
        assert sweeping.sweep_shared_memory(str(tmp_path)) == "" and (SHM / name).exists()
    # No file can have the first name, and looking for it raises ValueError.
    forged = {"files": {"no\0file": 1, name: inode}, "segments": [[0], 1, None]}
    (tmp_path / "shared.json").write_text(json.dumps(forged))
    assert name in sweeping.sweep_shared_memory(str(tmp_path)) and not (SHM / name).exists()


@pytest.mark.parametrize(("others", "swept"), [(False, True), (True, False)])
def test_a_file_that_nobody_holds_is_the_runs_own_if_nobody_else_could_have_made_it(
    monkeypatch, others, swept
):
    monkeypatch.setattr(sweeping, "_others", lambda own: others)
    monkeypatch.setattr(sweeping, "holders_of", lambda names, pids: {"held": {5}})
    assert sweeping.made_by({5}, {"held", "free"}) == ({"held", "free"} if swept else {"held"})


def test_a_program_that_makes_files_all_the_time_does_not_keep_a_core_busy(console, host, name):
    lines = ("import os, time", "end = time.monotonic() + 3", "n = 0", "while time.monotonic() < end:")
    loop = f"    p = '/dev/shm/{name}-%d' % n; n += 1; open(p, 'w').close(); os.unlink(p)"
    console.start("r1", command(*lines, loop, "print(n)"))
    console.running("r1")
    keeper = host.keepers("r1")[1]
    time.sleep(2)
    fields = Path(f"/proc/{keeper}/stat").read_text().rsplit(")", 1)[1].split()
    used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    assert used_s < 0.6, "looks take a twentieth of the time"
    console.closed("r1")
