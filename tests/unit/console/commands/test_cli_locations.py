"""The `trainyard location` commands."""

from __future__ import annotations

from tests.unit.console.commands.test_cli import trainyard

__all__ = ["trainyard"]


def test_a_location_is_bound_listed_and_opened_again(trainyard):
    trainyard("project", "add", "vision")
    trainyard("project", "add", "speech")
    assert trainyard("location", "list").out == "default\tall projects\n"
    done = trainyard("location", "bind", "default", "--project", "vision", "--project", "speech")
    assert (done.code, done.out) == (0, "Location default serves speech, vision.\n")
    assert trainyard("location", "list").out == "default\tspeech, vision\n"
    assert (
        trainyard("location", "bind", "default", "--all-projects").out
        == "Location default serves all projects.\n"
    )


def test_unknown_names_are_refused(trainyard):
    for words in (("moon", "--all-projects"), ("default", "--project", "moon")):
        refused = trainyard("location", "bind", *words)
        assert refused.code == 1 and "There is no" in refused.err
    assert trainyard("location", "bind", "default").code == 2
