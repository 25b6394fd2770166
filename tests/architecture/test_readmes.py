"""The README of each storey names every Python file of the storey, so that its map stays true."""

from __future__ import annotations

import re

import pytest

from tests.architecture.rooms import ROOT, STOREYS, product

# The runner is one program with its own description; the map of agents/ names it as a whole.
ONE_PROGRAM = ("agents", "runner")
CODE = re.compile(r"`([^`\n]+)`")


def files_of(storey: str) -> list[str]:
    """Every Python file of a storey that a map must name."""
    return [
        path.as_posix()
        for path in product()
        if path.parts[0] == storey and path.parts[:2] != ONE_PROGRAM and path.name != "__init__.py"
    ]


def missing(readme: str, files: list[str]) -> list[str]:
    """The files whose names are nowhere in the text as code (`reader`, `reader.py` or `logs/reader.py`)."""
    named = {word for code in CODE.findall(readme) for word in re.findall(r"\w+", code)}
    return [file for file in files if file.rpartition("/")[2].removesuffix(".py") not in named]


@pytest.mark.parametrize("storey", STOREYS)
def test_the_readme_of_a_storey_names_each_of_its_files(storey):
    assert missing((ROOT / storey / "README.md").read_text(), files_of(storey)) == []


def test_a_file_that_is_not_named_is_noticed():
    text = "- **`logs/`** `reader` · `storage.py` writes · verify"
    assert missing(text, ["jobs/logs/reader.py", "jobs/logs/storage.py"]) == []
    assert missing(text, ["jobs/logs/verify.py", "jobs/logs/storages.py"]) == [
        "jobs/logs/verify.py",
        "jobs/logs/storages.py",
    ]
