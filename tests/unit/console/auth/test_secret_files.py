"""Secrets of a deployment: made once, readable by the owner only, never replaced."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.fernet import Fernet

from console.auth import secret_files
from console.auth.secret_files import UnsafeFile


def test_each_secret_is_created_once_and_readable_by_its_owner_only(tmp_path):
    keys = secret_files.private_directory(tmp_path / "data" / "keys")
    first = (secret_files.secret_key(keys), secret_files.field_keys(keys), secret_files.deployment(keys))
    assert first == (
        secret_files.secret_key(keys),
        secret_files.field_keys(keys),
        secret_files.deployment(keys),
    )
    assert len(first[0]) >= 50
    assert Fernet(first[1][0]).decrypt(Fernet(first[1][0]).encrypt(b"x")) == b"x"
    assert re.fullmatch("[a-z0-9-]{1,40}", first[2])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [keys, *keys.iterdir()]}
    assert modes == {"keys": 0o700, "secret-key": 0o600, "field-key": 0o600, "deployment": 0o600}


def test_processes_that_start_together_use_the_same_secret(tmp_path):
    makes = (f"secret {number}" for number in range(1000))
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(
            lambda _: secret_files.read_or_create(tmp_path / "key", lambda: next(makes)), range(64)
        )
    assert len(set(answers)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_older_field_keys_still_decrypt(tmp_path):
    (tmp_path / "field-key").write_text("new\nold\n")
    (tmp_path / "field-key").chmod(0o600)
    assert secret_files.field_keys(tmp_path) == ["new", "old"]


@pytest.mark.parametrize(("mode", "text", "cure"), [(0o640, "x", "chmod 600"), (0o600, "\n", "backup")])
def test_a_file_that_is_not_safe_is_refused_with_the_cure(tmp_path, mode, text, cure):
    path = tmp_path / "secret-key"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(UnsafeFile, match=cure):
        secret_files.secret_key(tmp_path)
    assert path.read_text() == text
