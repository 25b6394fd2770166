"""Values of secrets, encrypted together with what they belong to.

So a row that somebody copies over another one in the database cannot be opened there.
"""

from __future__ import annotations

from agents.infra.secrets import SecretUnreadable, decrypt_fields, encrypt_fields
from agents.infra.texts import said


def seal(owner: str, name: str, value: str) -> bytes:
    return encrypt_fields({"of": owner, "name": name, "value": value})


def unseal(owner: str, name: str, sealed: bytes | memoryview) -> str:
    """Raises SecretUnreadable."""
    fields = decrypt_fields(sealed)
    if (fields.get("of"), fields.get("name")) != (owner, name):
        raise SecretUnreadable(said("It belongs to something else. Enter it again."))
    return str(fields["value"])
