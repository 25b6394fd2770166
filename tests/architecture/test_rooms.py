"""The rooms of the house: which may import which, how many files one may hold, and that their drawing is fresh."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.architecture import rooms

MAX_MODULES = 24
# One program, which hosts get as one file.
ONE_PROGRAM = "agents/runner"


@pytest.fixture(scope="module")
def arrows():
    return rooms.arrows()


def test_each_room_imports_what_the_table_says_and_no_more(arrows):
    """The table names every arrow, so that a new arrow is a decision, and one that is gone leaves the table."""
    assert arrows == rooms.may_import()


def test_no_rooms_import_each_other_in_a_circle():
    assert rooms.circles(rooms.may_import()) == set()


def test_imports_between_storeys_go_down():
    for room, targets in rooms.may_import().items():
        storey = rooms.STOREYS.index(room.split("/")[0])
        assert all(rooms.STOREYS.index(to.split("/")[0]) >= storey for to in targets), room


def test_no_folder_holds_more_than_a_person_can_oversee():
    counts = Counter(path.parent.as_posix() for path in rooms.product() if path.name != "__init__.py")
    assert {
        room: count for room, count in counts.items() if count > MAX_MODULES and room != ONE_PROGRAM
    } == {}


def test_the_drawing_is_fresh(arrows):
    assert rooms.PAGE.read_text() == rooms.page(arrows), "make rooms"


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, {"a", "b", "c"}),
    ],
)
def test_a_circle_is_found(graph, found):
    assert rooms.circles(graph) == found


def test_an_arrow_that_follows_from_others_is_not_drawn():
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert rooms.without_shortcuts(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_an_import_is_an_arrow(tmp_path, monkeypatch):
    for name, text in (
        ("jobs/logs/reader.py", "from jobs.wake import hints\nimport agents.models\n"),
        ("jobs/wake/hints.py", "from agents import models\n"),
        ("jobs/rules/spec/parse.py", ""),
        ("jobs/services.py", "from jobs.rules.spec.parse import parse\n"),
        ("agents/models.py", ""),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    assert rooms.arrows() == {
        "agents/models": set(),
        "jobs/logs": {"jobs/wake", "agents/models"},
        "jobs/rules/spec": set(),
        "jobs/services": {"jobs/rules/spec"},
        "jobs/wake": {"agents/models"},
    }
