"""A folder as an archive: the same bytes each time, without what is of this machine, and nothing from outside."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time

import pytest

from console.client import packing
from console.client.errors import ClientError
from console.client.packing import packed, read_tree
from console.client.progress import Progress


def archive_of(root):
    with packed(read_tree(root), Progress("")) as (file, digest, size):
        data = file.read()
    assert len(data) == size
    return data, digest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("print(1)\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o750)
    os.symlink("pkg/train.py", tmp_path / "link.py")
    return tmp_path


def test_the_same_folder_gives_the_same_bytes(folder):
    first = archive_of(folder)
    os.utime(folder / "run.sh", (1, 1))
    time.sleep(0.01)
    assert archive_of(folder) == first
    (folder / "pkg" / "train.py").write_text("print(2)\n")
    assert archive_of(folder)[1] != first[1]


def test_modes_and_links_are_kept_and_owners_are_not(folder):
    data, _ = archive_of(folder)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member for member in archive}
    assert {name: oct(member.mode) for name, member in members.items()} == {
        "pkg/train.py": "0o644",
        "run.sh": "0o755",
        "link.py": "0o777",
    }
    assert members["link.py"].linkname == "pkg/train.py"
    assert {(member.uid, member.uname, member.mtime) for member in members.values()} == {(0, "", packing.AT)}


def test_what_leads_out_of_the_folder_and_what_is_no_file_are_told(folder):
    os.symlink("/etc/passwd", folder / "absolute")
    os.symlink("../../etc", folder / "pkg" / "up")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "s"))
        tree = read_tree(folder)
    assert tree.odd == ["absolute", "pkg/up", "s"] and tree.links == ["link.py"]


def test_a_folder_with_nothing_or_too_much_is_refused(tmp_path, folder, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClientError, match="no file"):
        read_tree(tmp_path / "empty")
    with pytest.raises(ClientError, match="is no folder"):
        read_tree(tmp_path / "nowhere")
    monkeypatch.setattr(packing, "MAX_FILES", 1)
    with pytest.raises(ClientError, match="more than 1 files"):
        read_tree(folder)
