"""What Python made of the runner's modules is kept beside the archive: a start is quick with it, and the same without
it, whatever happened to the file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from agents.runner import compiled, compiling
from agents.ssh.runner_archive import RUNNER, runner_archive
from tests.unit.agents.runner.protocol_client import COMPILE, PYTHON, wait_for

# All that a start needs, and two modes that are quickly compiled.
OF_THE_RUNNER = ("__init__", "__main__", "compiled", "compiling", "forks", "linux")
ATTACH = """
from agents.runner.shells import words

def main():
    print(words.WORDS)
"""
# Asks for what modules of the runner ask of their loader, and fails where a keeper would write it down.
SERVE = """
import os, traceback

def main():
    try:
        raise ValueError("this line is shown")
    except ValueError:
        print(traceback.format_exc())
    print(__loader__.get_data(os.path.join(os.path.dirname(__file__), "linux.py"))[:20])
    print(__file__, __package__, __spec__.origin)
"""


@pytest.fixture
def make(tmp_path):
    """Makes the archive of a runner that says these words."""

    def made(words="one", held=False):
        package = tmp_path / f"sources of {words}"
        (package / "shells").mkdir(parents=True)
        for name in OF_THE_RUNNER:
            shutil.copy(RUNNER / f"{name}.py", package)
        if held:  # whoever compiles waits for the test
            text = (package / "compiling.py").read_text()
            assert text.count("time.sleep(pause_s)") == 1
            waits = "while not os.path.exists(archive + '.go'): time.sleep(0.01)"
            (package / "compiling.py").write_text(text.replace("time.sleep(pause_s)", waits))
        (package / "serve.py").write_text(SERVE)
        (package / "shells/__init__.py").write_text("")
        (package / "shells/attach.py").write_text(ATTACH)
        (package / "shells/words.py").write_text(f"WORDS = {words!r}\n")
        data = runner_archive(package)
        place = tmp_path / "bin" / f"{hashlib.sha256(data).hexdigest()}.pyz"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data)
        return place

    return made


@pytest.fixture
def archive(make):
    return make()


def start(archive, mode="attach", *, python=PYTHON, path=None, **env):
    """What a start prints. It must end well and complain of nothing."""
    command = [python, str(path or archive), mode]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
        cwd=archive.parent.parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def kept(archive):
    return sorted(path for path in archive.parent.iterdir() if path.name.endswith(".code"))


def compile_now(archive, *, python=PYTHON, **env):
    subprocess.run([python, "-c", COMPILE, str(archive)], check=True, env={**os.environ, **env})
    return kept(archive)


def settled(archive):
    """Once nobody compiles any more: the names beside the archives."""
    wait_for(lambda: not any(path.name.startswith(compiled.DRAFT) for path in archive.parent.iterdir()))
    return sorted(path.name for path in archive.parent.iterdir())


def replace(archive, other):
    """Other sources under the name of this archive: what is printed then tells where the code came from."""
    shutil.copy(other, archive)


def test_the_first_start_compiles_and_later_ones_read_that(make):
    archive = make(held=True)
    assert start(archive) == "one\n", "it waits for nobody, and nobody holds its channel"
    assert not kept(archive)
    go = archive.parent / f"{archive.name}.go"
    go.touch()
    wait_for(lambda: kept(archive), "the modules to be compiled")
    go.unlink()
    assert settled(archive) == sorted([archive.name, kept(archive)[0].name])
    assert kept(archive)[0].stat().st_mode & 0o777 == 0o600
    replace(archive, make("two"))
    assert start(archive) == "one\n" and start(archive, path=f"bin/{archive.name}") == "one\n"


def test_a_module_finds_itself_and_its_source_as_in_the_archive(archive):
    before = start(archive, "serve")
    assert "this line is shown" in before and str(archive) in before
    wait_for(lambda: kept(archive), "the modules to be compiled")
    assert start(archive, "serve") == before
    settled(archive)


def test_every_mode_of_the_runner_starts_from_what_was_compiled(tmp_path):
    data = runner_archive(RUNNER)
    archive = tmp_path / "bin" / f"{hashlib.sha256(data).hexdigest()}.pyz"
    archive.parent.mkdir()
    archive.write_bytes(data)
    compile_now(archive)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from agents.runner.compiled import read_compiled\nfrom zipimport import zipimporter\n"
        "kept = read_compiled(zipimporter(sys.argv[1])); sys.meta_path.insert(0, kept)\n"
        "import agents.runner.serve, agents.runner.shells.shell, agents.runner.shells.attach\n"
        "import agents.runner.file_access, agents.runner.cache.put, agents.runner.preparations.worker\n"
        "import agents.runner.outputs.transfer, agents.runner.host.probe\n"
        "own = [m for n, m in sys.modules.items() if n.startswith('agents.runner.') and not n.endswith('.compiled')]\n"
        "assert kept.whole and len(own) > 80 and all(m.__loader__ is kept for m in own)\n"
    )
    subprocess.run([PYTHON, "-c", program, str(archive)], check=True)


@pytest.mark.parametrize(
    "damage", ["empty", "torn head", "torn index", "torn code", "zeros", "added", "flipped"]
)
def test_a_damaged_file_is_not_believed_and_is_made_anew(archive, make, damage):
    """A power cut, a disk that was full, another program."""
    [path] = compile_now(archive)
    data = path.read_bytes()
    index = int.from_bytes(data[8:16], "little")
    path.write_bytes(
        {
            "empty": b"",
            "torn head": data[:11],
            "torn index": data[: 16 + index // 2],
            "torn code": data[: 16 + index + 1],
            "zeros": bytes(len(data)),
            "added": data[:16] + b"x" + data[16:],
            "flipped": data[: 16 + index] + bytes(byte ^ 1 for byte in data[16 + index :]),
        }[damage]
    )
    damaged = path.stat().st_ino
    assert start(archive) == "one\n"
    # Not the same bytes: marshal writes what is shared in a process as it is shared there.
    wait_for(lambda: path.stat().st_ino != damaged, "the file to be made anew")
    settled(archive)
    replace(archive, make("two"))
    assert start(archive) == "one\n"


def test_no_damage_gives_other_code(make):
    """Any byte changed, any length: each module is exactly what was compiled, or is compiled from its source."""
    archive = make()
    assert compiling.write_compiled(str(archive))
    [path] = kept(archive)
    data, draw = path.read_bytes(), random.Random(11)
    importer = __import__("zipimport").zipimporter(str(archive))
    right = codes(compiled.read_compiled(importer))
    assert len(right) == 10
    refused = 0
    for _ in range(2000):
        at = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(1500)
        damaged = (
            data[:at]
            if draw.random() < 0.3
            else data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        )
        path.write_bytes(damaged)
        found = compiled.read_compiled(importer)
        refused += found is None
        got = {} if found is None else codes(found)
        assert got.items() <= right.items()
        assert found is None or found.whole == (got == right)
    assert 0 < refused < 2000


def codes(found):
    specs = {name: found.find_spec(name) for name in found.modules}
    return {name: spec.loader_state for name, spec in specs.items() if spec is not None}


@pytest.mark.parametrize("thing", ["directory", "pipe", "link", "loop"])
def test_what_is_no_file_holds_up_no_start(archive, thing, tmp_path):
    [path] = compile_now(archive)
    path.unlink()
    if thing == "directory":
        path.mkdir()
    elif thing == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if thing == "loop" else tmp_path / "nothing")
    assert start(archive) == "one\n"
    settled(archive)


def test_each_python_reads_only_what_it_has_made(archive, make):
    """After an upgrade of the host's Python, with other options of it, and where hosts with different Pythons share a
    home."""
    [plain] = compile_now(archive)
    both = compile_now(archive, PYTHONOPTIMIZE="2")
    assert len(both) == 2 and plain in both
    [other] = set(both) - {plain}
    shutil.copy(plain, other)  # under the name of the other Python
    replace(archive, make("two"))
    assert start(archive, PYTHONOPTIMIZE="2") == "two\n", "what another Python has made"
    assert start(archive) == "one\n"
    settled(archive)


def test_a_python_of_another_version_has_a_file_of_its_own(archive, monkeypatch):
    names = {compiled.file_of(str(archive))}
    for version in ("3.7.16 (default, Jan 1 2025)", "3.7.17 (default, Jan 1 2026)"):
        monkeypatch.setattr(sys, "version", version)
        names.add(compiled.file_of(str(archive)))
    assert len(names) == 3


def test_the_file_of_another_runner_is_not_read(make):
    """Two consoles of different versions share a login."""
    one, two = make("one"), make("two")
    [of_one] = compile_now(one)
    [of_two] = set(compile_now(two)) - {of_one}
    shutil.copy(of_one, of_two)
    assert start(two) == "two\n" and start(one) == "one\n"
    wait_for(lambda: of_two.read_bytes() != of_one.read_bytes(), "the file to be made anew")
    settled(one)


def test_an_archive_that_is_not_what_its_name_says_is_not_compiled(archive, make):
    """Nor one whose name says nothing."""
    replace(archive, make("two"))
    assert not compiling.write_compiled(str(archive)) and not kept(archive)
    assert start(archive) == "two\n"
    settled(archive)
    assert not kept(archive)
    plain = archive.parent / "runner.pyz"
    shutil.copy(archive, plain)
    assert start(plain) == "two\n" and not compiled.may_keep(str(plain))


def test_on_a_full_disk_nothing_is_compiled_and_nothing_left(archive, monkeypatch):
    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling.os, "write", full)
    monkeypatch.setattr(compiling, "compiled", lambda *_: pytest.fail("in vain, at each start anew"))
    with pytest.raises(OSError, match="No space"):
        compiling.write_compiled(str(archive))
    assert settled(archive) == [archive.name]


def test_where_nothing_can_be_kept_a_start_does_not_even_try(archive, monkeypatch):
    assert compiled.may_keep(str(archive))
    disk = os.statvfs(archive)
    with monkeypatch.context() as patch:  # as of a file system that is mounted read-only
        patch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        assert not compiled.may_keep(str(archive))
    fields = list(disk)
    fields[4] = 0  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    assert not compiled.may_keep(str(archive))


@pytest.mark.parametrize("at", ["pause", "compiled", "rename"])
def test_one_that_is_killed_leaves_no_part_under_the_name(archive, monkeypatch, at):
    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        place = {"pause": compiling.time, "compiled": compiling, "rename": os}[at]
        setattr(place, {"pause": "sleep"}.get(at, at), killed)
        compiling.write_compiled(str(archive))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not kept(archive) and len(os.listdir(archive.parent)) == 2
    [draft] = archive.parent.glob(f"{compiled.DRAFT}*")
    assert not compiling.write_compiled(str(archive)), "beside another that may be at it"
    # It is dead, by the clock of this disk. A date of the future, by a clock that was set, holds nobody up either.
    for age_s in (compiling.DRAFT_LIVES_S + 1, -7200):
        os.utime(draft, (time.time() - age_s,) * 2)
        assert compiling.write_compiled(str(archive))
    assert len(kept(archive)) == 1 and start(archive) == "one\n"


def test_many_starts_at_once_do_not_all_compile(archive):
    """As after the restart of a console with a hundred links to one machine. Two that begin in the same moment may."""
    starts = [subprocess.Popen([PYTHON, str(archive), "attach"], stdout=subprocess.PIPE) for _ in range(12)]
    drafts = set()

    def seen():
        for path in archive.parent.glob(f"{compiled.DRAFT}*"):
            with contextlib.suppress(FileNotFoundError):
                drafts.update([path.name] if path.stat().st_size else [])
        return kept(archive)

    wait_for(seen, "the modules to be compiled")
    assert [each.communicate()[0] for each in starts] == [b"one\n"] * 12
    settled(archive)
    assert len(drafts) <= 4


def test_the_process_that_compiles_holds_no_channel_and_has_a_name(make):
    """sshd ends a channel when nobody holds it any more; who looks for runners by their command line finds none."""
    archive = make(held=True)
    assert start(archive) == "one\n"
    wait_for(lambda: compiling_into(archive.parent), "the process that compiles")
    [pid] = compiling_into(archive.parent)
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in ("0", "1", "2")} == {"/dev/null"}
    (archive.parent / f"{archive.name}.go").touch()
    wait_for(lambda: kept(archive), "the modules to be compiled")


def compiling_into(directory):
    """The processes with that name which hold a draft in this directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                named = file.read().startswith(b"trainyard-compile")
            held = (
                [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")] if named else []
            )
            found += [pid] if any(path.startswith(f"{directory}/{compiled.DRAFT}") for path in held) else []
    return found


def test_a_directory_in_the_way_costs_no_start_a_compilation(archive):
    [made] = compile_now(archive)
    made.unlink()
    made.mkdir()
    before = archive.parent.stat().st_mtime_ns
    assert start(archive) == "one\n"
    assert settled(archive) == sorted([archive.name, made.name]) and not list(made.iterdir())
    assert archive.parent.stat().st_mtime_ns == before, "not even a draft was made"


def test_a_login_that_may_have_no_more_processes_starts_all_the_same(archive):
    """An attach needs no process of its own. Root has no limit of processes, so here the system call fails."""
    refused = (
        "import errno, os, runpy, sys\ndef fork():\n    raise OSError(errno.EAGAIN, 'fork')\nos.fork = fork\n"
    )
    program = refused + "sys.argv[:] = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    command = [PYTHON, "-c", program, str(archive), "attach"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")
    assert settled(archive) == [archive.name]
