"""`trainyard secret`: values come on stdin, none is printed, and a new field key replaces the old one everywhere."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra import secrets
from agents.ssh import keys
from console.commands.secrets import COLUMNS
from jobs import services
from jobs.models import JobSecret, NotificationTarget, Project, Secret
from jobs.notifications import targets
from jobs.secrets import of_jobs, store
from tests.unit.console.commands.test_cli import trainyard
from tests.unit.console.views.example_rows import a_host, document

__all__ = ["trainyard"]

CANARY = "canary-51e0c7a9"


def test_a_secret_is_set_listed_and_removed(trainyard):
    User.objects.create_user("ada")
    done = trainyard("secret", "set", "HF", stdin=f"{CANARY}\n")
    assert (done.code, done.out) == (0, "Set the secret HF of project default.\n")
    assert store.value_of(Secret.objects.get()) == CANARY
    assert trainyard("secret", "set", "HF", stdin="another").out.startswith("Changed")
    assert trainyard("secret", "set", "WANDB", "--user", "ada", stdin=CANARY).code == 0
    listed = trainyard("secret", "list")
    assert listed.out.split("\t")[:2] == ["HF", "command line"] and "never used" in listed.out
    assert trainyard("secret", "list", "--user", "ada").out.startswith("WANDB\t")
    assert trainyard("secret", "remove", "HF").code == 0
    gone = trainyard("secret", "remove", "HF")
    assert gone.code == 1 and "There is no secret HF of project default" in gone.err


@pytest.mark.parametrize(
    ("name", "value", "said"), [("1A", "x", "not begin"), ("A", "", "must not be empty")]
)
def test_what_cannot_be_stored_is_refused(trainyard, name, value, said):
    refused = trainyard("secret", "set", name, stdin=value)
    assert refused.code == 1 and said in refused.err and not Secret.objects.exists()


def test_everything_is_encrypted_with_a_new_field_key(trainyard, settings):
    ada, project, now = User.objects.create_superuser("ada"), Project.objects.get(), timezone.now()
    a_host()
    public = keys.public_line()
    targets.add(ada, "slack", f"https://x.example/{CANARY}", ["failed"], 1.0, "ada", now)
    store.put(project, "HF", CANARY, "ada", now)
    body = document()
    body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = [
        {"name": "HF_TOKEN", "valueFrom": {"secret": "HF"}}
    ]
    job = services.submit(project, ada, body, "", None, now)
    old, new = settings.FIELD_KEYS[0], Fernet.generate_key().decode()
    settings.FIELD_KEYS = [new, old]
    assert trainyard("secret", "rotate").out == "Encrypted 4 secrets with the first line of keys/field-key.\n"
    assert trainyard("secret", "rotate").out.startswith("Encrypted 0 ")
    settings.FIELD_KEYS = [new]
    keys.check_private_key()
    assert keys.public_line() == public
    assert CANARY in secrets.decrypt_fields(NotificationTarget.objects.get().sealed)["address"]
    assert store.value_of(Secret.objects.get()) == CANARY and of_jobs.values_of(job.pk) == [CANARY]


def test_what_no_key_can_read_is_named(trainyard):
    store.put(Project.objects.get(), "HF", CANARY, "ada", timezone.now())
    Secret.objects.update(sealed=b"damaged")
    refused = trainyard("secret", "rotate")
    assert refused.code == 1 and "1 cannot be read" in refused.err and "Secret " in refused.err


def test_every_encrypted_column_is_rotated():
    """A model that stores something encrypted uses one of these names for its column, and is in the list."""
    named = {
        (model, field.name)
        for model in apps.get_models()
        for field in model._meta.fields
        if field.get_internal_type() == "BinaryField"
        and ("sealed" in field.name or "encrypted" in field.name)
    }
    assert named == set(COLUMNS) and JobSecret in {model for model, _ in COLUMNS}
