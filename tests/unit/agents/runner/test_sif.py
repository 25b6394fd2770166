"""SIF files: which paths are taken for one, and what is read of them. Real ones run in flows/test_apptainer.py."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.runner.cache.images import find_image, root_of
from agents.runner.cache.store import Cache
from agents.runner.home import Home
from agents.runner.preparations import sif
from agents.runner.preparations.images import prepare_image
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.reduction.files_on_hosts import directory_of
from agents.runner.runs.orders import parse_order
from agents.runner.runtimes.apptainer_options import (
    BEGUN,
    DESCRIPTION,
    PATH,
    SCRIPT,
    client_env,
    command_of,
    has_begun,
)
from jobs.rules.spec import tasks
from tests.unit.agents.runner.protocol_client import wait_for


@pytest.mark.parametrize("check", [sif.is_sif, tasks.is_sif])
@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/shared/train.sif", True),
        ("/a/b-c_d.1/x@2=3+4~5.sif", True),
        ("shared/train.sif", False),
        ("/shared/train", False),
        ("/shared/../etc/x.sif", False),
        ("/shared/./x.sif", False),
        ("//x.sif", False),
        ("/.hidden/x.sif", False),
        ("/.sif", False),
        ("/x y.sif", False),
        ("/x;y.sif", False),
        ("/$(id).sif", False),
        ("/x\n.sif", False),
        ("/x.sif\n", False),
        ("/é.sif", False),
        ("/a:b.sif", False),
        ("/" + "a" * 1000 + ".sif", False),
    ],
)
def test_what_is_a_path_of_a_sif_file(check, path, right):
    assert check(path) is right


def test_the_digest_is_that_of_the_bytes(tmp_path):
    data = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(3 << 20)
    (tmp_path / "x.sif").write_bytes(data)
    path = str(tmp_path / "x.sif")
    with sif.open_file(path) as file:
        found = sif.digest_of_file(file, path, Report(str(tmp_path)))
    assert found == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "data",
    [
        b"# SIF_MAGIC\nBootstrap: localimage\nFrom: /x\n%setup\nid\n",
        b"#" + b"x" * 31 + b"SIF_MAGIC\0" + b"01\0\nBootstrap: localimage\nFrom: /x\n%setup\nid\n",
    ],
)
def test_a_definition_with_commands_for_the_host_is_no_sif_file(tmp_path, data):
    """Apptainer executes those of any file that is no SIF file."""
    path = tmp_path / "x.sif"
    path.write_bytes(data)
    assert not sif.has_magic(str(path))
    with pytest.raises(Failed, match="is no SIF file"), sif.open_file(str(path)) as file:
        sif.digest_of_file(file, str(path), Report(str(tmp_path)))


def test_a_file_that_was_changed_has_another_stamp(tmp_path):
    """Also one of the same size that was given its old times: nobody can set the time of an inode's last change."""
    path = tmp_path / "x.sif"
    path.write_bytes(b"1")
    before = path.stat()
    assert sif.is_still(str(path), sif.stamp_of(before))

    def is_later():  # the clock of files goes in steps of some milliseconds
        path.write_bytes(b"2")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return path.stat().st_ctime_ns != before.st_ctime_ns

    wait_for(is_later)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not sif.is_still(str(path), sif.stamp_of(before))
    path.unlink()
    assert not sif.is_still(str(path), sif.stamp_of(before))


def test_what_is_no_file_is_told_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.sif")
    (tmp_path / "directory.sif").mkdir()
    (tmp_path / "text.sif").write_text("no image")
    for name, words in (
        ("pipe", "is no plain file"),
        ("directory", "is no plain file"),
        ("none", "cannot be read by the login of this host: No such file or directory"),
        ("text", "is no SIF file"),
    ):
        path = str(tmp_path / f"{name}.sif")
        with pytest.raises(Failed, match=words) as failed, sif.open_file(path) as file:
            sif.digest_of_file(file, path, Report(str(tmp_path)))
        assert failed.value.fault == USER


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """prepare(during): prepare the file at `shared/x.sif`, with an Apptainer whose build does this first. The place of
    the file is a link to `old`; `new` has another one."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.sif").write_bytes(sif._MAGIC + name.encode())
    (tmp_path / "shared").symlink_to("old")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "unsquashfs").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    home = Home("dep")
    home.base = str(tmp_path / ".trainyard")
    os.mkdir(home.base)

    def act(during="true"):
        # apptainer build --section none --force --sandbox ROOT SOURCE
        lines = ["#!/bin/sh", "echo build >> builds", during, 'mkdir "$6" && cp "$7" "$6/made-of"', ""]
        (programs / "apptainer").write_text("\n".join(lines))
        (programs / "apptainer").chmod(0o755)
        what = {"engine": "apptainer", "image": str(tmp_path / "shared" / "x.sif")}
        return prepare_image(what, Report(str(tmp_path)), home)["id"]

    def shipped(data, image="localhost/trainyard/archive:1"):
        """The same of a file that the console has shipped."""
        sha = hashlib.sha256(data).hexdigest()
        place = Path(home.base, "cache", "blobs")
        place.mkdir(parents=True, exist_ok=True)
        (place / sha).write_bytes(data)
        what = {
            "engine": "apptainer",
            "image": image,
            "archive": sha,
            "blobs": [{"sha256": sha, "size": len(data)}],
        }
        return prepare_image(what, Report(str(tmp_path)), home)["id"]

    act.cache, act.shipped = Cache(home), shipped
    return act


def made_of(prepare, key):
    return (Path(root_of(prepare.cache, key)) / "made-of").read_bytes()


SWAP = "rm shared && ln -s new shared"


def test_a_file_is_unpacked_once_under_the_digest_of_its_bytes(prepare):
    key = prepare()
    assert key == hashlib.sha256(Path("old/x.sif").read_bytes()).hexdigest()
    assert made_of(prepare, key) == Path("old/x.sif").read_bytes()
    assert prepare() == key and Path("builds").read_text() == "build\n"
    subprocess.run(["sh", "-c", SWAP], check=True)
    other = prepare()
    assert other == hashlib.sha256(Path("new/x.sif").read_bytes()).hexdigest()
    assert made_of(prepare, other) == Path("new/x.sif").read_bytes()


def test_a_shipped_file_is_unpacked_once_and_found_by_its_name(prepare):
    data = Path("old/x.sif").read_bytes()
    prepare()
    Path("builds").write_text("")
    Path(root_of(prepare.cache, prepare.shipped(data))).rename("away")
    key = prepare.shipped(data)
    assert key == hashlib.sha256(data).hexdigest() and made_of(prepare, key) == data
    assert prepare.shipped(data) == key and Path("builds").read_text() == "build\n"
    assert find_image(prepare.cache, "localhost/trainyard/archive:1") == key
    assert prepare() == key, "the same bytes under a path of the host"
    assert Path("builds").read_text() == "build\n"


@pytest.mark.parametrize("change", ["echo more >> shared/x.sif", SWAP, "cp new/x.sif x && mv x shared/x.sif"])
def test_a_file_that_is_changed_while_it_is_unpacked_is_not_kept(prepare, change):
    with pytest.raises(Failed, match=r"x\.sif was changed while it was read") as failed:
        prepare(change)
    assert failed.value.fault == HOST
    assert not list(Path(".trainyard").rglob("made-of"))


@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("change", ["echo more >> shared/x.sif", SWAP])
def test_a_file_that_is_changed_while_it_is_hashed_is_not_taken_for_what_it_was(
    prepare, monkeypatch, change, unpacked
):
    """Nor handed to Apptainer: whatever its path means by then would be kept under the digest of the other."""
    key = hashlib.sha256(Path("old/x.sif").read_bytes()).hexdigest()
    if unpacked:
        assert prepare() == key
        os.utime("old/x.sif")
    Path("builds").write_text("")
    digest = sif.digest_of_file

    def changed_meanwhile(*given):
        found = digest(*given)
        subprocess.run(["sh", "-c", change], check=True)
        return found

    monkeypatch.setattr(sif, "digest_of_file", changed_meanwhile)
    with pytest.raises(Failed, match="was changed while it was read"):
        prepare()
    assert Path("builds").read_text() == ""


def test_the_digest_is_of_the_file_that_was_opened_and_of_no_other_under_its_path(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(sif._MAGIC + name.encode())
    with sif.open_file(str(tmp_path / "a")) as file:
        (tmp_path / "b").rename(tmp_path / "a")
        found = sif.digest_of_file(file, str(tmp_path / "a"), Report(str(tmp_path)))
    assert found == hashlib.sha256(sif._MAGIC + b"a").hexdigest()


def test_a_host_without_unsquashfs_says_what_to_install(prepare, monkeypatch):
    which = shutil.which
    monkeypatch.setattr(
        sif.shutil, "which", lambda name, **more: None if name == "unsquashfs" else which(name, **more)
    )
    with pytest.raises(
        Failed, match="unsquashfs is not installed on this host: install squashfs-tools"
    ) as failed:
        prepare()
    assert failed.value.fault == HOST and not Path("builds").exists()


@pytest.mark.parametrize(
    ("of_job", "of_file", "asked", "found"),
    [
        (None, "/of the file:/lib", {"reduction": "trainer"}, "{place}:/of the file:/lib"),
        (None, "", {"reduction": "trainer"}, "{place}"),
        ("/of-job", "/of-file", {"reduction": "trainer"}, "{place}:/of-job"),
        (None, "/of the file:/lib", {}, "/of the file:/lib:{module}"),
        (None, "", {}, "{module}"),
        ("/of-job", "/of-file", {}, "/of-job:{module}"),
        (None, "/of-file", {"reduction": "trainer"}, "{place}:/of-file:{module}"),
    ],
)
def test_what_is_ours_keeps_what_the_scripts_of_a_sif_file_set(
    tmp_path, monkeypatch, of_job, of_file, asked, found
):
    """The modules of the reduction come first, as in all engines, and hypertune last; PYTHONPATH of a job wins
    over the file's."""
    directory = tmp_path / "it's $HOME" / "runs" / "r"
    directory.mkdir(parents=True)
    module = directory.parent.parent / "python"
    env = {"PYTHONPATH": of_job} if of_job else {}
    if "{module}" in found:
        module.mkdir()
    (tmp_path / DESCRIPTION).write_text('{"entrypoint": ["/x"], "own_variables": true}')
    order = parse_order(
        {
            "command": ["true"],
            "env": env,
            **asked,
            "runtime": {"kind": "apptainer", "image": "/x.sif"},
        }
    )
    known = {"program": "apptainer", "root": str(tmp_path / "root"), "image": "/x.sif"}
    facts = {"host_env": {}, "tmp": "", "mark": "a:b", "runtime": known}
    _, client = command_of(order, str(directory), "/work", facts)
    # The engine sets what the client was given for it, and then reads our script; it is last of all.
    script = (directory / BEGUN).read_bytes()
    assert SCRIPT in script and not has_begun(str(directory))
    given = {"PYTHONPATH": of_file} if of_file else {}
    if "APPTAINERENV_PYTHONPATH" in client:
        given["PYTHONPATH"] = client["APPTAINERENV_PYTHONPATH"]
    read = script.replace(SCRIPT, b"") + b'printf %s "$PYTHONPATH"'
    printed = subprocess.run(["/bin/sh", "-c", read], env=given, check=True, capture_output=True, text=True)
    place = directory_of(str(directory.parent.parent))
    assert printed.stdout == found.format(place=place, module=module) and "PYTHONPATH" not in client
    with open(directory / BEGUN, "ab") as file:
        file.write(b"\n")
    assert has_begun(str(directory))


def test_the_variables_of_a_job_win_over_the_scripts_of_a_sif_file():
    given = client_env({"FOO": "job", "a.b": "1"}, "/work", own_variables=True)
    assert given["APPTAINERENV_FOO"] == "job" and given["a.b"] == "1" and "APPTAINERENV_PATH" not in given
    for name in ("PREPEND_PATH", "APPEND_PATH"):  # by these Apptainer would change the PATH of the file
        given = client_env({name: "/x", name + "S": "/x"}, "/work", own_variables=True)
        assert given[name] == given[f"APPTAINERENV_{name}S"] == "/x" and f"APPTAINERENV_{name}" not in given
    plain = client_env({"FOO": "job"}, "/work")
    assert plain["FOO"] == "job" and plain["APPTAINERENV_PATH"] == PATH
