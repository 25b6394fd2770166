"""Tokens are kept for their owner alone: in a file of mode 0600, or in the keyring if there is one."""

from __future__ import annotations

import json

import pytest

from tests.harness.command_line import CommandLine
from tests.unit.console.client.test_connection import Console, console

__all__ = ["Console", "console"]

TOKEN = "tyd_canary-of-this-test"
ACCOUNT = {
    "user": "ada",
    "admin": False,
    "version": "0.1.0",
    "projects": [{"name": "default", "role": "submitter"}],
    "token": {"scope": "submit", "expireTime": "2027-01-01T00:00:00Z"},
}
# A keyring as the package `keyring` shows it, in a file.
KEYRING = """
import json, os, pathlib
FILE = pathlib.Path(os.environ["FAKE_KEYRING"])
class Ring: priority = 5
def get_keyring(): return Ring()
def _all(): return json.loads(FILE.read_text()) if FILE.exists() else {}
def set_password(service, name, value):
    if os.environ.get("LOCKED"): raise RuntimeError("locked")
    FILE.write_text(json.dumps({**_all(), name: value}))
def get_password(service, name): return _all().get(name)
def delete_password(service, name): FILE.write_text(json.dumps({k: v for k, v in _all().items() if k != name}))
"""


@pytest.fixture
def command(tmp_path, console):
    console.answers = [(200, {}, ACCOUNT)]
    return CommandLine(tmp_path)


def log_in(command, url, *words, **environment):
    done = command.run("login", "--token", url, *words, stdin=TOKEN + "\n", **environment)
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_a_token_is_in_a_file_of_its_owner(command, console):
    log_in(command, console.url, "--name", "lab", "--project", "nlp")
    kept = command.folder / "config" / "tokens.json"
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert TOKEN not in (command.folder / "config" / "client.json").read_text()
    assert "nlp" in command.run("whoami").stdout
    kept.chmod(0o640)
    done = command.run("whoami", check=False)
    assert done.returncode == 1 and "chmod 600" in done.stderr


def test_several_consoles_by_name(command, console):
    log_in(command, console.url, "--name", "one")
    log_in(command, console.url.replace("127.0.0.1", "localhost"), "--name", "two")
    assert "localhost" in command.run("whoami").stdout
    assert "127.0.0.1" in command.run("whoami", "--console", "one").stdout
    assert "127.0.0.1" in command.run("whoami", TRAINYARD_CONSOLE="one").stdout
    taken = command.run("login", "--token", "--name", "one", "http://x.invalid", stdin="t\n", check=False)
    assert taken.returncode == 2 and "is the name of" in taken.stderr
    command.run("logout", "two")
    assert ("/api/v1/account/token", f"Bearer {TOKEN}") in console.seen
    assert "127.0.0.1" in command.run("whoami").stdout
    command.run("logout")
    assert command.run("whoami", check=False).returncode == 1
    assert TOKEN not in (command.folder / "config" / "tokens.json").read_text()


def test_a_keyring_keeps_it_if_there_is_one(command, console):
    (command.folder / "installed" / "keyring.py").write_text(KEYRING)
    ring = command.folder / "ring.json"
    command.environment["FAKE_KEYRING"] = str(ring)
    assert "the keyring" in log_in(command, console.url).stdout
    assert list(json.loads(ring.read_text()).values()) == [TOKEN]
    assert not (command.folder / "config" / "tokens.json").exists()
    assert "ada" in command.run("whoami").stdout
    command.run("logout")
    assert json.loads(ring.read_text()) == {}


def test_a_keyring_that_is_locked_is_told_and_the_file_serves(command, console):
    (command.folder / "installed" / "keyring.py").write_text(KEYRING)
    command.environment |= {"FAKE_KEYRING": str(command.folder / "ring.json"), "LOCKED": "1"}
    done = log_in(command, console.url)
    assert "does not take the token" in done.stderr and "tokens.json" in done.stdout
    assert "ada" in command.run("whoami").stdout


@pytest.mark.parametrize("typed", ["", "two words", "ü"])
def test_what_is_no_token_is_not_sent(command, console, typed):
    done = command.run("login", "--token", console.url, stdin=typed + "\n", check=False)
    assert done.returncode == 2 and "no token" in done.stderr and console.seen == []


def test_a_token_that_is_refused_is_not_kept(command, console):
    console.answers = [(401, {}, {"error": {"message": "The API token is not known."}})]
    done = command.run("login", "--token", console.url, stdin=TOKEN + "\n", check=False)
    assert done.returncode == 1 and "not known" in done.stderr
    assert not (command.folder / "config").exists()
