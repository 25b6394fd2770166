"""`cp -r` copies the files of a folder, says what it leaves out, and follows links where it is told to."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest

from console.client import folders, transfers
from console.client.errors import ClientError
from console.client.folders import read_folder
from console.client.verbs import storage


@pytest.fixture
def folder(tmp_path):
    """As a cache of Hugging Face has it: bytes, and snapshots that link to them."""
    (tmp_path / "cache" / "blobs").mkdir(parents=True)
    (tmp_path / "cache" / "snapshots").mkdir()
    (tmp_path / "cache" / "blobs" / "e9").write_text("weights")
    os.symlink("../blobs/e9", tmp_path / "cache" / "snapshots" / "model.bin")
    os.symlink("snapshots", tmp_path / "cache" / "latest")
    return tmp_path / "cache"


@pytest.fixture
def copy(folder, monkeypatch):
    """What `cp -r` of the folder sends."""

    def copy(**options):
        sent = []
        monkeypatch.setattr(
            transfers, "send", lambda session, path, to, progress: sent.append((to.uri, path.read_text()))
        )
        given = {"sources": [str(folder)], "target": "gs://b/x", "recursive": True, "quiet": False}
        args = Namespace(**{**given, "follow": False, **options})
        assert storage.cp(SimpleNamespace(args=args)) == 0
        return sent

    return copy


@pytest.mark.parametrize("quiet", [False, True])
def test_links_that_are_left_out_are_named(copy, capsys, quiet):
    assert copy(quiet=quiet) == [("gs://b/x/blobs/e9", "weights")]
    told = capsys.readouterr()
    assert "left out, links (--follow copies what they lead to): latest, snapshots/model.bin\n" in told.err
    assert told.out == ("" if quiet else "Copied 1 file, 7 B to gs://b/x\n")


def test_what_links_lead_to_is_copied_in_their_place(copy, capsys):
    assert sorted(copy(follow=True)) == [
        ("gs://b/x/blobs/e9", "weights"),
        ("gs://b/x/latest/model.bin", "weights"),
        ("gs://b/x/snapshots/model.bin", "weights"),
    ]
    assert capsys.readouterr().err == ""


def test_a_circle_of_links_ends_and_is_named(folder, copy, capsys):
    os.symlink("..", folder / "blobs" / "up")
    os.symlink("nothing", folder / "gone")
    assert len(copy(follow=True)) == 3
    assert ", or leads in a circle: gone, blobs/up/\n" in capsys.readouterr().err


def test_folders_that_link_crosswise_end_with_a_sentence(tmp_path, monkeypatch):
    """Each is met by every way to it: 2 links in each of 60 folders are 2^60 ways."""
    for number in range(60):
        (tmp_path / str(number)).mkdir()
        for name in "ab":
            os.symlink(tmp_path / str(number + 1), tmp_path / str(number) / name)
    (tmp_path / "60").mkdir()
    monkeypatch.setattr(folders, "MOST", 500)
    with pytest.raises(ClientError, match="more than 500 files and folders"):
        read_folder(tmp_path / "0", follow=True)
    assert read_folder(tmp_path / "0", follow=False).links == ["a", "b"]


def test_a_folder_deeper_than_python_calls_itself_is_read(tmp_path):
    (tmp_path / ("d/" * 200)).mkdir(parents=True)
    (tmp_path / ("d/" * 200) / "file").write_text("x")
    most = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = read_folder(tmp_path, follow=False)
    finally:
        sys.setrecursionlimit(most)
    assert [name for _, name in found.files] == ["d/" * 200 + "file"]


def test_what_is_no_file_or_cannot_be_read_is_named(folder, monkeypatch):
    with socket.socket(socket.AF_UNIX) as one:
        monkeypatch.chdir(folder)
        one.bind("socket")
    os.mkfifo(folder / "pipe")
    real = os.listdir
    closed = folder / "snapshots"

    def listdir(path):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    found = read_folder(folder, follow=False)
    assert found.others == ["pipe", "socket", "snapshots/"] and found.links == ["latest"]
    assert [name for _, name in found.files] == ["blobs/e9"]


def test_many_names_are_counted(folder, copy, capsys):
    for number in range(20):
        os.symlink("e9", folder / "blobs" / f"link-{number:02}")
    copy()
    assert "link-06 and 14 more\n" in capsys.readouterr().err
