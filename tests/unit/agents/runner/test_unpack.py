"""Unpacking what a user brought: nothing leads out of the directory, and nothing grows without end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import resource
import stat
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.runner.cache import unpack as unpacking
from agents.runner.cache.archives import BadArchive
from agents.runner.cache.unpack import DiskFull, Limits, unpack
from tests.unit.agents.runner.hostile_archives import REFUSED, global_header, link, tar, zipped

SMALL = Limits(size=64 << 20, entries=1000, ratio=100, ratio_from=1 << 20)


@pytest.fixture
def room(tmp_path):
    """A directory to unpack into, with something precious beside it."""
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "into").mkdir()
    return tmp_path


def do(room, data, limits=SMALL):
    (room / "archive").write_bytes(data)
    with open(room / "archive", "rb") as file:
        unpack(file, str(room / "into"), limits)


def tree(room):
    into = room / "into"
    found = {}
    for path in sorted(into.rglob("*")):
        name = path.relative_to(into).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def assert_nothing_got_out(room):
    assert (room / "precious").read_text() == "untouched"
    assert {path.name for path in room.iterdir()} <= {"precious", "into", "archive"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_archive_is_refused_with_its_reason(room, name):
    make, words = REFUSED[name]
    with pytest.raises((BadArchive, DiskFull)) as refused:
        do(room, make())
    assert re.search(words, str(refused.value)), str(refused.value)
    assert_nothing_got_out(room)


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"]
)
def test_files_directories_and_inner_links_come_out_as_they_went_in(room, pack):
    data = tar(
        ("./", {"type": tarfile.DIRTYPE}),
        ("code/train.py", {"data": b"print(1)\n" * 20_000, "mode": 0o6755}),
        ("code/empty", {"data": b""}),
        ("code/日本.txt", {"data": "é".encode()}),
        ("a" * 180 + "/" + "b" * 180, {"data": b"long"}),
        link("code/latest", "train.py"),
        link("up", "code/../code/train.py"),
        link("nowhere", "code/missing"),
        link("again", "code/train.py", tarfile.LNKTYPE),
    )
    do(room, pack(data))
    found = tree(room)
    assert found["code/train.py"] == found["again"] == b"print(1)\n" * 20_000
    assert found["code/empty"] == b"" and found["code/日本.txt"] == "é".encode()
    assert found["a" * 180 + "/" + "b" * 180] == b"long"
    assert found["code/latest"] == "train.py" and found["nowhere"] == "code/missing"
    mode = stat.S_IMODE((room / "into/code/train.py").stat().st_mode)
    assert mode & 0o100 and not mode & 0o7077, "executable, private, neither setuid nor setgid"


def test_several_packed_streams_behind_each_other_are_one(room):
    whole = tar(("a", {"data": b"1" * 5000}), ("b", {"data": b"2" * 5000}))
    do(room, gzip.compress(whole[:3000]) + gzip.compress(whole[3000:]) + b"\0" * 700)
    assert tree(room) == {"a": b"1" * 5000, "b": b"2" * 5000}


def test_a_zip_file_comes_out(room):
    do(room, zipped(("d/", 0o040755), ("d/run.sh", 0o100755), ("l", stat.S_IFLNK | 0o777), data=b"d"))
    assert tree(room)["d/run.sh"] == b"d" and tree(room)["l"] == "d"
    assert os.access(room / "into/d/run.sh", os.X_OK)


def test_progress_is_told_by_the_bytes_of_the_archive(room):
    data = gzip.compress(tar(*[(f"f{n}", {"data": os.urandom(50_000)}) for n in range(20)]))
    (room / "archive").write_bytes(data)
    seen = []
    with open(room / "archive", "rb") as file:
        unpack(file, str(room / "into"), SMALL, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(data), len(data)) and seen == sorted(seen) and seen[0][0] < len(data)


def test_a_full_disk_is_no_fault_of_the_archive(room, monkeypatch):
    monkeypatch.setattr(unpacking, "free_bytes", lambda path: 10)
    with pytest.raises(DiskFull, match="disk of this host is full"):
        do(room, tar(("a", {"data": b"y" * 100})))


def test_a_gigabyte_that_is_a_megabyte_takes_little_memory(room):
    """In a process of its own, whose memory is limited."""
    with lzma.open(room / "archive", "wb", preset=0) as file, tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("zeros")
        info.size = 300 << 20
        with open("/dev/zero", "rb") as zeros:
            archive.addfile(info, zeros)
    code = (
        "import sys, resource\n"
        "from agents.runner.cache.unpack import unpack, Limits\n"
        "unpack(open(sys.argv[1], 'rb'), sys.argv[2], Limits(ratio=10**6))\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(room / "archive"), str(room / "into")],
        check=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20)),
    )
    assert (room / "into/zeros").stat().st_size == 300 << 20


def test_headers_for_all_entries_are_not_kept(room):
    with gzip.open(room / "archive", "wb", compresslevel=1) as file:
        for number in range(40):
            file.write(global_header(1000 << 10, number) + tarfile.TarInfo(f"f{number}").tobuf())
        file.write(bytes(1024))
    tracemalloc.start()
    try:
        with open(room / "archive", "rb") as file:
            unpack(file, str(room / "into"), Limits(ratio=10**6))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert len(tree(room)) == 40


parts = st.sampled_from(["a", "b", "..", ".", "", "/", "c\n", "é", "A", "x" * 300, "-rf", "~"])
names = st.lists(parts, min_size=1, max_size=4).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(names, kinds, names, st.integers(0, 0o7777)), max_size=6), st.data())
def test_whatever_is_in_an_archive_stays_in_its_directory(tmp_path_factory, members, data):
    room = tmp_path_factory.mktemp("r")
    (room / "precious").write_text("untouched")
    (room / "into").mkdir()
    made = bytearray(
        tar(*[(n, {"type": kind, "linkname": target, "mode": mode}) for n, kind, target, mode in members])
    )
    for _ in range(data.draw(st.integers(0, 3))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    try:
        do(room, bytes(made))
    except (BadArchive, DiskFull):
        pass
    else:
        top = os.path.realpath(room / "into")
        for path in (room / "into").rglob("*"):
            assert os.path.realpath(path) == top or os.path.realpath(path).startswith(top + "/")
            kind = path.lstat().st_mode
            assert stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)
            assert not stat.S_IMODE(kind) & 0o6000
    assert_nothing_got_out(room)


@settings(max_examples=100)
@given(st.binary(max_size=400), st.sampled_from([b"PK\3\4", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0", b""]))
def test_bytes_of_any_kind_are_refused_in_words(tmp_path_factory, data, magic):
    room = tmp_path_factory.mktemp("r")
    (room / "into").mkdir()
    with pytest.raises(BadArchive):
        do(room, magic + data)


def test_a_zip_file_with_too_many_names_is_not_read(room):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "x")
    data = bytearray(file.getvalue())
    at = data.rindex(b"PK\5\6")
    data[at + 12 : at + 16] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(BadArchive, match=r"have 1073741824 bytes|damaged"):
        do(room, bytes(data))
