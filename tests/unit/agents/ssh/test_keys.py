"""The deployment's own key: one pair however many threads ask first, and the private half is stored encrypted."""

from __future__ import annotations

import base64
import threading

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.db import connection

from agents.models import Keypair
from agents.ssh import keys


@pytest.mark.django_db(transaction=True)
def test_concurrent_first_uses_get_the_same_pair():
    barrier, lines = threading.Barrier(6), []

    def ask():
        barrier.wait(30)
        try:
            lines.append(keys.public_line())
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(lines) == 6 and len(set(lines)) == 1


@pytest.mark.django_db
def test_the_private_half_is_encrypted_at_rest_with_the_deployments_key(monkeypatch):
    line, key = keys.public_line(), keys.private_key()
    assert line.split()[1] == key.get_base64()
    row = bytes(Keypair.objects.get().private_encrypted)
    secret = key._signing_key.encode()
    assert len(secret) == 32
    for form in (secret, base64.b64encode(secret), b"PRIVATE KEY", secret.hex().encode()):
        assert form not in row and form not in base64.urlsafe_b64decode(row)
    monkeypatch.setattr(settings, "FIELD_KEYS", [Fernet.generate_key()])
    with pytest.raises(keys.KeyUnreadable, match="data directory"):
        keys.private_key()
