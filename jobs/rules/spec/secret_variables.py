"""Secret variables of a replica: their names are in the job's document, their values never are.

- `{"name": "HF_TOKEN", "value": "hf_...", "secret": true}`: the value comes with the job, and is taken out at once.
- `{"name": "HF_TOKEN", "valueFrom": {"secret": "NAME"}}`: a stored secret of the person, or else of the project.
- `{"name": "HF_TOKEN", "valueFrom": {"secret": "NAME", "of": "project"}}`: a stored secret of the project.

The canonical document keeps the variable with an empty `value`, which is also what Google's clients expect to find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agents.infra.texts import said
from jobs.rules.spec.json_fields import MessageReader, text_problem

PERSON, PROJECT = "person", "project"
SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
NAME_RULE = said("must be 1 to 100 letters, digits, _, . and -, and not begin with a digit.")
# A token has some hundred bytes, a private key some thousand.
MAX_VALUE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """A variable with a secret value. `secret` names a stored secret, `of` whose it is: "person", "project", or ""
    for the first that has it. Without `secret` the value came with the job."""

    name: str
    secret: str = ""
    of: str = ""

    def document(self) -> dict[str, object]:
        if not self.secret:
            return {"name": self.name, "value": "", "secret": True}
        whose = {"of": self.of} if self.of else {}
        return {"name": self.name, "value": "", "valueFrom": {"secret": self.secret, **whose}}


# The name under which a job keeps the credential of a pool's repository. No variable can have it.
GIT_CREDENTIAL = "git credential"


@dataclass(frozen=True, slots=True)
class AskedSecret:
    """A secret variable as a document asked for it: in which pool, at which path, and the value if it was there."""

    pool: int
    path: str
    variable: SecretVariable
    value: str = field(default="", repr=False)


def without_values(document: object) -> object:
    """A copy of a document as somebody wrote it, valid or not, in which inline secrets have no value."""
    if isinstance(document, list):
        return [without_values(item) for item in document]
    if not isinstance(document, dict):
        return document
    hidden = {"value": ""} if document.get("secret") and "value" in document else {}
    return {name: without_values(item) for name, item in document.items()} | hidden


def value_problem(value: object) -> str | None:
    """What is wrong with the value of a secret, without repeating any of it. None if nothing is."""
    if not isinstance(value, str):
        return said("must be a string.")
    problem = text_problem(value, printable=False)
    if problem is not None:
        return problem
    if not value:
        return said("must not be empty.")
    size = len(value.encode())
    if size <= MAX_VALUE_BYTES:
        return None
    return said("has {number} bytes; at most {most} are possible.", number=size, most=MAX_VALUE_BYTES)


def read_secret(message: MessageReader, name: str, pool: int) -> AskedSecret | None:
    """The secret variable in one item of `env`. None if its value is not secret: then nothing of it was read."""
    if not (message.has("secret") or message.has("value_from")):
        return None
    secret = message.switch("secret")
    source = message.message("value_from")
    if source.empty:
        return _with_value(message, name, pool) if secret else None
    if secret:
        message.complain(
            "secret", said("is not needed beside value_from: what it refers to is secret already.")
        )
    if message.take("value") not in (None, ""):
        message.complain("value", said("must be left out beside value_from."))
    variable = SecretVariable(name, _stored_name(source), _owner(source))
    source.close()
    return AskedSecret(pool, message.path, variable)


def _with_value(message: MessageReader, name: str, pool: int) -> AskedSecret:
    value = message.take("value")
    problem = value_problem(value) if value not in (None, "") else None
    if problem is not None:
        message.complain("value", problem)
    return AskedSecret(
        pool, message.path, SecretVariable(name), value if isinstance(value, str) and not problem else ""
    )


def _stored_name(source: MessageReader) -> str:
    stored = source.text("secret", maximum=2048)
    if not SECRET_NAME.fullmatch(stored) and not source.complained("secret"):
        source.complain("secret", said("names a stored secret; it {must}", must=NAME_RULE))
    return stored


def _owner(source: MessageReader) -> str:
    owner = source.text("of", maximum=64)
    if owner not in ("", PERSON, PROJECT):
        source.complain("of", said('must be "project" or "person", or be left out.'))
        return ""
    return owner
