"""Python environments: made once for each set of packages, from source archives and wheels, without the internet."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

from agents.runner.cache import environments, python_environment
from agents.runner.cache.environments import make_environment
from agents.runner.cache.install_log import INSTALL_LOG, head_of_log, keep_install_log
from agents.runner.cache.python_environment import is_ready
from agents.runner.cache.store import BLOBS, ENVIRONMENTS, Cache
from agents.runner.home import Home
from agents.runner.logs.mask_patterns import parts_of
from agents.runner.preparations.long_programs import LongProgram, Unprepared
from agents.runner.runs import orders

KEY = "e" * 64
# As Google's CustomJob.from_local_script makes it.
SETUP = """from setuptools import find_packages, setup
setup(name="aiplatform_custom_trainer_script", version="0.1", packages=find_packages(),
      install_requires=({requires},) if {requires} else (), include_package_data=True)
"""


def source_archive(code, requires=""):
    file = io.BytesIO()
    files = {
        "setup.py": SETUP.format(requires=repr(requires)),
        "aiplatform_custom_trainer_script/__init__.py": "",
        "aiplatform_custom_trainer_script/task.py": code,
    }
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"aiplatform_custom_trainer_script-0.1/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return file.getvalue()


def wheel(name, version, code):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", code)
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return file.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    orders.login_env.cache_clear()
    home = Home("dep")
    home.make()
    cache = Cache(home)
    cache.make(BLOBS)
    cache.make(ENVIRONMENTS)
    yield cache
    orders.login_env.cache_clear()


@pytest.fixture
def make(cache, tmp_path):
    """make({name: bytes}, …) → what was made; the output of pip is in make.output."""

    def make(packages, index="none", key=KEY, **document):
        shipped = []
        for name, data in packages.items():
            sha = hashlib.sha256(data).hexdigest()
            Path(cache.path(BLOBS, sha)).write_bytes(data)
            shipped.append({"sha256": sha, "name": name})
        document = {"packages": shipped, "index": index, **document}
        return make_environment(cache, key, document, str(make.output), lambda *report: None)

    make.output = tmp_path / "output"
    return make


def run_module(cache, module, *arguments, key=KEY):
    env = dict(orders.login_env())
    python = os.path.join(cache.path(ENVIRONMENTS, key), "bin", "python3")
    done = subprocess.run(
        [python, "-m", module, *arguments], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


TASK = "import sys, helper; print(helper.ANSWER, sys.argv[1:], sys.prefix != sys.base_prefix)"


def test_a_source_archive_and_a_wheel_are_installed_without_the_internet(make, cache):
    packages = {
        "trainer-0.1.tar.gz": source_archive(TASK),
        "helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42"),
    }
    made = make(packages)
    assert (
        run_module(cache, "aiplatform_custom_trainer_script.task", "--epochs", "3")
        == "42 ['--epochs', '3'] True\n"
    )
    assert "helper==1.2" in made["installed"] and made["python"].startswith("3.")
    assert len(made["installed"]) < 6, "only what was installed here, not what the host has"
    assert not os.path.exists(cache.path(ENVIRONMENTS, KEY) + ".packages")
    assert made["made"] == "now" and make(packages) == {**made, "made": "earlier"}


def test_what_pip_printed_is_kept_and_tells_no_password(make, cache):
    wheels = {"helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42")}
    make(wheels, index="http://lab:pass%20word@127.0.0.1:9/simple")
    place = cache.path(ENVIRONMENTS, KEY)
    head = head_of_log(place, True)
    assert b"Successfully installed helper-1.2\n" in head and head.endswith(b"\n")
    make.output.write_text("not this\nfrom http://lab:pass%20word@127.0.0.1:9 as 'pass word'")
    keep_install_log(place, str(make.output), 9, parts_of("http://lab:pass%20word@127.0.0.1:9/simple"))
    assert head_of_log(place, True) == b"from http://lab:***********@127.0.0.1:9 as '*********'\n"


def test_of_a_very_long_output_of_pip_the_end_is_kept(make, cache, tmp_path):
    make.output.write_text("".join(f"line {number} of secret-word\n" for number in range(40_000)))
    keep_install_log(str(tmp_path), str(make.output), 0, ["secret-word"])
    first, *lines, last = head_of_log(str(tmp_path), True).splitlines()
    left_out = make.output.stat().st_size - sum(len(line) + 1 for line in [*lines, last])
    assert first == b"trainyard: the first %d bytes of the install's output are left out" % left_out
    assert last == b"line 39999 of ***********" and lines[0].startswith(b"line ")


@pytest.mark.parametrize(
    "stamp",
    [
        None,
        {"version": "3.11\x1b]0;x", "installed": ["helper==1.2", "a==\x1b[2J\n", 7, "x" * 500, {}]},
        {"version": {}, "installed": "helper==1.2"},
        {"version": "3.11.2", "installed": [f"package-{number}==1.0" for number in range(500)]},
    ],
)
def test_the_line_about_an_earlier_install_is_one_line_whatever_a_job_wrote_there(tmp_path, stamp):
    if stamp:
        (tmp_path / python_environment.STAMP).write_text(json.dumps(stamp))
    (tmp_path / INSTALL_LOG).symlink_to("/etc/passwd")
    for made_for_it in (False, True):
        line = head_of_log(str(tmp_path), made_for_it)
        assert line.startswith(b"trainyard: the packages were installed") and line.endswith(b"\n")
        assert len(line) < 2500 and not any(byte < 32 for byte in line[:-1])


def test_what_a_killed_process_left_is_not_in_the_way(make, cache):
    os.makedirs(cache.path(ENVIRONMENTS, KEY) + ".packages/0")
    made = make({"helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42")})
    assert "helper==1.2" in made["installed"]


def test_the_second_time_nothing_is_done(make, cache, tmp_path):
    first = make({"helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42")})
    size = make.output.stat().st_size
    began = time.monotonic()
    assert make({}) == {**first, "made": "earlier"}
    assert time.monotonic() - began < 0.1 and make.output.stat().st_size == size


def test_an_environment_sees_the_libraries_of_the_host(make, cache, tmp_path):
    """Also of a host whose python3 lives in an environment itself."""
    own = tmp_path / "own"
    # With the pip of the Python below it: installing one would be half of this test.
    words = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(own)]
    subprocess.run(words, check=True, capture_output=True)
    (place,) = (own / "lib").glob("python3*/site-packages")
    (place / "torch_of_the_host.py").write_text("GPUS = 8\n")
    made = make(
        {
            "helper-1.2-py3-none-any.whl": wheel(
                "helper", "1.2", "import torch_of_the_host as t; print(t.GPUS)"
            )
        },
        interpreter=str(own / "bin" / "python3"),
    )
    assert run_module(cache, "helper") == "8\n" and made["installed"] == ["helper==1.2"]


def test_pip_that_fails_is_the_users_error_with_its_last_lines(make, cache):
    with pytest.raises(Unprepared) as failed:
        make({"trainer-0.1.tar.gz": source_archive(TASK, "no-such-package>=7")})
    assert failed.value.whose == "user" and "no-such-package>=7" in str(failed.value)
    assert not cache.has(ENVIRONMENTS, KEY), "nothing half made is left"
    with pytest.raises(Unprepared, match="syntax|Error|error"):
        make({"trainer-0.1.tar.gz": b"this is no archive"})


@pytest.mark.slow
def test_an_environment_of_another_python_is_made_again(make, cache, monkeypatch):
    packages = {"helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42")}
    make(packages)
    mark = Path(cache.path(ENVIRONMENTS, KEY)) / "of-the-first"
    mark.touch()
    assert is_ready(cache, KEY)
    identity = python_environment.identity
    for module in (python_environment, environments):
        monkeypatch.setattr(module, "identity", lambda python: [*identity(python), "upgraded"])
    assert not is_ready(cache, KEY)
    make(packages)
    assert is_ready(cache, KEY) and not mark.exists()


@pytest.mark.slow
def test_where_ensurepip_and_pip_are_missing_a_wheel_of_pip_helps(make, cache, monkeypatch):
    """As on a Debian without python3-pip and python3-venv: these modules are not there."""
    run = LongProgram.run

    def run_without(self, command, *arguments):
        missing = command[1:3] in (["-m", "pip"], ["-m", "ensurepip"])
        return 1 if missing else run(self, command, *arguments)

    monkeypatch.setattr(LongProgram, "run", run_without)
    helper = {"helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "print('made')")}
    with pytest.raises(Unprepared, match="neither pip nor ensurepip: install python3-pip") as missing:
        make(helper)
    assert missing.value.whose == "host"
    bundled = next(Path(sys.base_prefix).glob("lib/python3*/ensurepip/_bundled/pip-*.whl"))
    made = make({**helper, bundled.name: bundled.read_bytes()})
    assert run_module(cache, "helper") == "made\n" and "helper==1.2" in made["installed"]


class Index(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


def test_an_index_gives_what_the_packages_need(make, cache, tmp_path):
    place = tmp_path / "index" / "simple" / "helper"
    place.mkdir(parents=True)
    (place / "helper-1.2-py3-none-any.whl").write_bytes(wheel("helper", "1.2", "ANSWER = 'of the index'"))
    (place / "index.html").write_text('<a href="helper-1.2-py3-none-any.whl">helper-1.2-py3-none-any.whl</a>')
    handler = functools.partial(Index, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        made = make(
            {"helper_user-1-py3-none-any.whl": requiring(wheel_name="helper_user", requires="helper")},
            index=f"http://127.0.0.1:{server.server_port}/simple",
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "helper==1.2" in made["installed"]
    assert run_module(cache, "helper_user") == "of the index\n"


def requiring(wheel_name, requires):
    file = io.BytesIO(wheel(wheel_name, "1", "import helper; print(helper.ANSWER)"))
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            more = f"Requires-Dist: {requires}\n" if name.endswith("METADATA") else ""
            new.writestr(name, old.read(name).decode() + more)
    return made.getvalue()


@pytest.mark.parametrize("name", ["../x.whl", "-r.whl", "a b.whl", "x.py", "", "x\n.whl", "a/b.whl"])
def test_a_package_has_the_name_of_a_package(make, name):
    with pytest.raises(Unprepared, match="is not the name of a wheel"):
        make({name: b"x"})


def test_a_host_without_python_says_so(make):
    with pytest.raises(Unprepared, match="python3.99 is not installed on this host") as missing:
        make({}, interpreter="python3.99")
    assert missing.value.whose == "host"
