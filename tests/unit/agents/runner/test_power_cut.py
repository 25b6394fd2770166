"""A power cut on the host: what was told to the console or done by a program must have been synced before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.power_cut import Synced, journal_in


@pytest.fixture
def journal(host, tmp_path):
    """The journal of what the host's runners synced."""
    place = tmp_path / "site"
    place.mkdir()
    host.env.update(journal_in(place))
    (place / "journal").touch()
    return place / "journal"


@pytest.fixture
def synced_console(journal, host):
    console = host.connect()
    console.hello()
    return console


def test_a_claim_is_synced_before_its_command_is_executed(synced_console, host, journal):
    """Else, after a power cut, the claim would be gone, and the same run could be started again."""
    synced_console.start("r1", ["cat", str(journal)])
    synced_console.closed("r1")
    before = Synced.read(synced_console.ended_log("r1")[0].decode())
    assert "r1" in before.names.get(str(host.run_dir("r1").parent), {}), (
        "the program ran before its claim was safe"
    )


def test_an_end_is_synced_before_it_is_told(synced_console, host, journal):
    synced_console.start("r1", ["sh", "-c", "exit 7"])
    synced_console.phase("r1", "ended", "closed")
    documents = [json.loads(data) for data in _documents(journal)]
    ended = [each for each in documents if each["run"] == "r1" and each["exit_code"] == 7]
    assert ended and ended[0]["phase"] == "ended"


def test_a_tombstone_is_synced_before_it_is_told(synced_console, host, journal):
    synced_console.stop("r1", 0)
    synced_console.closed("r1")
    synced = Synced.read(journal.read_text())
    assert "r1" in synced.names.get(str(host.run_dir("r1").parent), {})
    documents = [json.loads(data) for data in _documents(journal)]
    assert [each["why"] for each in documents if each["run"] == "r1"] == ["tombstone"]


def _documents(journal: Path) -> list[str]:
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    return [row["data"] for row in rows if "/facts.json" in row["path"]]
