"""Rows of the doors: how a script proves who it is, and how the first person gets in. No behaviour."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is stored: the token has 256 random bits, so no salt or stretching is needed."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name


class SetupToken(models.Model):
    """The one-time link that lets the first person name themselves. Valid while no admin exists."""

    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class Invitation(models.Model):
    """The one-time link with which a person sets their password: newly added, or because they forgot it."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitation")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    made_by = models.CharField(max_length=150)


class LoginFailure(models.Model):
    """A wrong password: what console/auth/throttle.py counts. Rows older than its window are deleted as it goes."""

    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["address", "at"], name="login_failure_from")]
