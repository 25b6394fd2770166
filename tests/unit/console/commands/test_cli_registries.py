"""`trainyard registry`: the password comes on stdin, and nothing prints it."""

from __future__ import annotations

import pytest

from agents.models import Location
from jobs.models import Project, RegistryCredential
from jobs.secrets import image_registries
from tests.unit.console.commands.test_cli import trainyard

__all__ = ["trainyard"]

CANARY = "canary-51e0c7a9"


def test_a_credential_is_set_listed_and_removed(trainyard):
    done = trainyard("registry", "set", "ghcr.io", "--user", "ada", stdin=f"{CANARY}\n")
    assert (done.code, done.out) == (0, "Set the credential of registry ghcr.io for project default.\n")
    found = image_registries.credentials(Project.objects.get(), "default", "ghcr.io")
    assert found == {"registry": "ghcr.io", "username": "ada", "password": CANARY}
    assert trainyard("registry", "set", "ghcr.io", "--user", "b", stdin="x").out.startswith("Changed")
    listed = trainyard("registry", "list")
    assert listed.out.split("\t")[:2] == ["ghcr.io", "command line"] and CANARY not in listed.out
    assert trainyard("registry", "remove", "ghcr.io").code == 0
    gone = trainyard("registry", "remove", "ghcr.io")
    assert gone.code == 1 and "no credential of registry ghcr.io for project default" in gone.err


def test_that_of_a_location(trainyard):
    Location.objects.get_or_create(name="lab")
    done = trainyard("registry", "set", "r.lab:5000", "--user", "ada", "--location", "lab", stdin=CANARY)
    assert done.out == "Set the credential of registry r.lab:5000 for location lab.\n"
    assert trainyard("registry", "list", "--location", "lab").out.startswith("r.lab:5000\t")
    assert trainyard("registry", "list").out == ""


@pytest.mark.parametrize(
    ("words", "stdin", "told"),
    [
        (("set", "lab", "--user", "ada"), "x", "such as ghcr.io"),
        (("set", "ghcr.io", "--user", "ada"), "", "password must be a line"),
        (("list", "--location", "nowhere"), "", "There is no location"),
        (("list", "--project", "nothing"), "", "nothing"),
    ],
)
def test_what_is_wrong_is_refused(trainyard, words, stdin, told):
    refused = trainyard("registry", *words, stdin=stdin)
    assert refused.code == 1 and told in refused.err and not RegistryCredential.objects.exists()
