"""Tables of the console: sessions, API tokens, the setup link, invitations, logins. No behaviour."""

from __future__ import annotations

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from jobs.models import Project


class Session(AbstractBaseSession):
    """A session of a browser. `console/auth/session_store.py` reads and writes the rows."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="sessions"
    )
    made_at = models.DateTimeField(null=True, blank=True, help_text="null: before this was written down")
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="a time of the last five minutes before the last page"
    )
    address = models.CharField(max_length=64, blank=True, db_default="", help_text="of the last page")
    agent = models.CharField(
        max_length=200, blank=True, db_default="", help_text="as the browser names itself"
    )
    way = models.CharField(
        max_length=16, blank=True, db_default="", help_text="console.auth.session_store.Way"
    )


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is stored: the token has 256 random bits, so no salt or stretching is needed."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    warned_at = models.DateTimeField(
        null=True, blank=True, help_text="when a message said that the token ends soon"
    )
    elevated = models.BooleanField(
        default=False,
        help_text="it may do what asks a person for the password (console/auth/login/confirmation.py)",
    )
    scope = models.CharField(
        max_length=16, default="admin", db_default="admin", help_text="console.auth.scopes.Scope"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, help_text="it is good for this one only"
    )

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name


class DeviceLogin(models.Model):
    """A login of the command line client that waits until a person confirms its code on a page.

    The client alone has the secret, of which only the SHA-256 is here. The code is shown to the person at both ends.
    The token is made when the client asks for it, so it is stored nowhere.
    """

    digest = models.CharField(max_length=64, unique=True)
    code = models.CharField(max_length=8, unique=True)
    client = models.CharField(max_length=100, help_text="who asks, as the client says")
    address = models.CharField(max_length=64, help_text="where it was asked from")
    network = models.CharField(max_length=64, db_index=True, help_text="what counts as one client")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    denied_at = models.DateTimeField(null=True, blank=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="device_logins",
        help_text="who has confirmed it",
    )
    auth_hash = models.CharField(
        max_length=128, blank=True, help_text="of the password then: another one since ends this"
    )
    scope = models.CharField(max_length=16, blank=True, help_text="console.auth.scopes.Scope")
    project = models.ForeignKey(
        Project,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        help_text="the token is good for this one only",
    )
    days = models.PositiveSmallIntegerField(default=0)


class SetupToken(models.Model):
    """The one-time link with which the first person makes an admin account. It is valid while no admin exists."""

    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)


class Invitation(models.Model):
    """The one-time link with which a new person, or one who forgot the password, sets a password."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitation")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    made_by = models.CharField(max_length=150)


class LoginTally(models.Model):
    """How often one thing was tried within an hour, after the first time (console/auth/login/login_audit.py)."""

    what = models.CharField(max_length=40)
    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    since = models.DateTimeField()
    last_at = models.DateTimeField()
    more = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["what", "name", "address"], name="login_tally_of_one")]


class LoginFailure(models.Model):
    """A failed login. auth/login/throttle.py counts these rows and deletes those that are older than its window."""

    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["address", "at"], name="login_failure_from")]


class Preferences(models.Model):
    """What a person has chosen for their pages, on every browser."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences"
    )
    language = models.CharField(max_length=16, blank=True, help_text="empty: as the browser asks")
    time_zone = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Asia/Tokyo; empty: that of the browser",
    )
    single_keys = models.BooleanField(
        default=True, db_default=True, help_text="keys of one letter do something (static/frame/keys.js)"
    )
    digest = models.CharField(
        max_length=8, blank=True, default="", db_default="", help_text="daily, weekly; empty: no digest"
    )
    digest_due_at = models.DateTimeField(null=True, blank=True, db_index=True)


class OidcIdentity(models.Model):
    """Who a person is at the login server: its `sub`, and never an address or a name, which may be given away."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="oidc_identity"
    )
    issuer = models.CharField(max_length=200)
    sub = models.CharField(max_length=255)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "sub"], name="oidc_identity_of_one")]


class Passkey(models.Model):
    """A key of a person's device (WebAuthn). Only the public half is here."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, help_text="the SHA-256 of the credential's id")
    credential = models.BinaryField(help_text="fido2's AttestedCredentialData: the id and the public key")
    counter = models.BigIntegerField(help_text="of signatures, as the device said last; 0: it does not count")
    made_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-made_at", "-id"]


class SecondFactor(models.Model):
    """The key that a person shares with the app of their phone, which shows a code every 30 s (TOTP, RFC 6238)."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor"
    )
    sealed = models.BinaryField(help_text="the key, encrypted by agents/infra/secrets.py")
    made_at = models.DateTimeField()
    used_step = models.BigIntegerField(
        help_text="the step of 30 s of the last code that was good: no code of it or before is good again"
    )


class RecoveryCode(models.Model):
    """A code that stands for a code of the second factor once. A good one is deleted, so that it is good once.

    Only its SHA-256 is stored: it has 80 random bits.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes"
    )
    digest = models.CharField(max_length=64, unique=True)
    made_at = models.DateTimeField()


class SavedView(models.Model):
    """A list of jobs with its filters and order, under a name: of a person, or of a project for all its members."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="saved_views"
    )
    project = models.ForeignKey(
        "jobs.Project", null=True, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1200, help_text="the query of the address of the list")
    made_by = models.CharField(max_length=150)
    made_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_view_of_person_once"),
            models.UniqueConstraint(fields=["project", "name"], name="saved_view_of_project_once"),
            models.CheckConstraint(
                condition=models.Q(user__isnull=False, project=None)
                | models.Q(user=None, project__isnull=False),
                name="saved_view_has_one_owner",
            ),
        ]

    def __str__(self) -> str:
        return self.name
