"""Nobody but its owner can read the data directory, whoever made it and however."""

from __future__ import annotations

import os
import stat

import pytest

from console.auth import data_directory
from console.auth.secret_files import UnsafeFile


@pytest.fixture(autouse=True)
def keep_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_of_trainyard_that_others_can_open_is_closed(tmp_path):
    for name, inside in (("empty", ()), ("used", ("keys", "files"))):
        data = tmp_path / name
        for part in inside:
            (data / part).mkdir(parents=True)
        data.mkdir(exist_ok=True)
        data.chmod(0o755)
        (note,) = data_directory.prepare(data)
        assert mode(data) == 0o700 and "mode 755" in note and "now 700" in note
        assert data_directory.prepare(data) == []


def test_a_new_directory_is_closed_and_so_is_what_is_made_in_it(tmp_path):
    data = tmp_path / "a" / "data"
    assert data_directory.prepare(data) == []
    (data / "file").write_text("x")
    (data / "directory").mkdir()
    assert [mode(path) for path in (data, data / "file", data / "directory")] == [0o700, 0o600, 0o700]


def test_a_directory_with_other_things_in_it_is_refused_and_not_touched(tmp_path):
    shared = tmp_path / "srv"
    (shared / "www").mkdir(parents=True)
    shared.chmod(0o755)
    with pytest.raises(UnsafeFile, match=f"mode 755.*chmod 700 {shared}"):
        data_directory.prepare(shared)
    assert mode(shared) == 0o755
    assert data_directory.prepare(shared, own=True) and mode(shared) == 0o700


def test_a_directory_that_is_shared_on_purpose_is_refused(tmp_path):
    shared = tmp_path / "tmp"
    (shared / "keys").mkdir(parents=True)
    shared.chmod(0o1777)
    with pytest.raises(UnsafeFile, match="directory of its own"):
        data_directory.prepare(shared)
    assert mode(shared) == 0o1777


def test_a_directory_that_may_not_be_changed_is_refused_with_the_cure(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    (tmp_path / "keys").mkdir()

    def refuse(path, mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(tmp_path), "chmod", refuse)
    with pytest.raises(UnsafeFile, match="chmod 700 .*chown"):
        data_directory.prepare(tmp_path)


def test_files_of_a_database_elsewhere_are_closed(tmp_path):
    files = [tmp_path / f"x.sqlite3{end}" for end in ("", "-wal", "-shm")]
    for path in files[:2]:
        path.write_text("")
        path.chmod(0o644)
    assert len(data_directory.close_files(files)) == 2
    assert [mode(path) for path in files[:2]] == [0o600, 0o600] and not files[2].exists()
