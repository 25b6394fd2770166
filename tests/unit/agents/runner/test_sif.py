"""SIF files: which paths are taken for one, and what is read of them. Real ones run in flows/test_apptainer.py."""

from __future__ import annotations

import hashlib
import os

import pytest

from agents.runner.preparations import sif
from agents.runner.preparations.report import USER, Failed, Report
from agents.runner.runtimes.apptainer_options import PATH, client_env
from jobs.rules.spec import tasks


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
    found = sif.digest_of_file(str(tmp_path / "x.sif"), Report(str(tmp_path)))
    assert found == hashlib.sha256(data).hexdigest()


def test_a_file_that_was_changed_has_another_stamp(tmp_path):
    path = tmp_path / "x.sif"
    path.write_bytes(b"1")
    before = sif.stamp_of(str(path))
    assert sif.stamp_of(str(path)) == before
    path.write_bytes(b"2")
    os.utime(path, ns=(1, 1))
    assert sif.stamp_of(str(path)) != before


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
        with pytest.raises(Failed, match=words) as failed:
            sif.digest_of_file(str(tmp_path / f"{name}.sif"), Report(str(tmp_path)))
        assert failed.value.fault == USER


def test_the_variables_of_a_job_win_over_the_scripts_of_a_sif_file():
    given = client_env({"FOO": "job", "a.b": "1"}, "/work", own_variables=True)
    assert given["APPTAINERENV_FOO"] == "job" and given["a.b"] == "1" and "APPTAINERENV_PATH" not in given
    plain = client_env({"FOO": "job"}, "/work")
    assert plain["FOO"] == "job" and plain["APPTAINERENV_PATH"] == PATH
