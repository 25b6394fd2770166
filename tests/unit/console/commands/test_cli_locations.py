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


def test_an_alias_of_images_is_added_listed_and_taken_away(trainyard):
    every = "us-docker.pkg.dev/vertex-ai/*"
    done = trainyard("location", "alias", "default", every, "host")
    assert (done.code, done.out) == (0, f"In location default, {every} is host.\n")
    trainyard("location", "alias", "default", every, "ghcr.io/lab/train:1")
    assert trainyard("location", "aliases", "default").out == f"{every}\tghcr.io/lab/train:1\n"
    done = trainyard("location", "unalias", "default", every)
    assert (done.code, done.out) == (0, f"Location default has no alias {every} any more.\n")
    assert trainyard("location", "aliases", "default").out == ""
    refused = trainyard("location", "unalias", "default", every)
    assert refused.code == 1 and "has no alias" in refused.err
    refused = trainyard("location", "alias", "default", "*", "host")
    assert refused.code == 1 and "without its tag" in refused.err
    for words in (("aliases", "moon"), ("alias", "moon", every, "host"), ("unalias", "moon", every)):
        refused = trainyard("location", *words)
        assert refused.code == 1 and "There is no location" in refused.err


def test_unknown_names_are_refused(trainyard):
    for words in (("moon", "--all-projects"), ("default", "--project", "moon")):
        refused = trainyard("location", "bind", *words)
        assert refused.code == 1 and "There is no" in refused.err
    assert trainyard("location", "bind", "default").code == 2
