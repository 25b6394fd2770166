"""Forms about people: logging in, accounts, passwords, and tokens for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.auth import access, tokens
from console.auth.scopes import Scope
from jobs.models import Project

NEW = {"autocomplete": "new-password"}


def _compare(form: forms.Form, typed: Mapping[str, Any], first: str, again: str) -> None:
    """Refuse two passwords that differ. Whether the first would do is said too, which is otherwise asked later."""
    if not typed.get(first) or not typed.get(again) or typed[first] == typed[again]:
        return
    form.add_error(again, _("The two passwords differ. Type the same password twice."))
    try:
        validate_password(typed[first], User(username=typed.get("username", "")))
    except ValidationError as refused:
        form.add_error(first, refused)


class Setup(forms.Form):
    username = forms.CharField(
        max_length=150,
        label=gettext_lazy("Your name"),
        help_text=gettext_lazy("You log in with it. Letters, digits and @ . + - _"),
        widget=forms.TextInput(
            attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        ),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        help_text=gettext_lazy("At least 10 characters, and not a common password."),
        widget=forms.PasswordInput(attrs=NEW),
    )
    again = forms.CharField(
        strip=False, label=gettext_lazy("Password again"), widget=forms.PasswordInput(attrs=NEW)
    )

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        _compare(self, typed, "password", "again")
        return typed


class Login(forms.Form):
    username = forms.CharField(
        max_length=150,
        label=gettext_lazy("Name"),
        widget=forms.TextInput(
            attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        ),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    next = forms.CharField(required=False, widget=forms.HiddenInput)


class NewToken(forms.Form):
    name = forms.CharField(
        max_length=tokens.MAX_NAME,
        label=gettext_lazy("What is it for?"),
        help_text=gettext_lazy("For example: laptop, nightly CI."),
    )
    days = forms.TypedChoiceField(
        choices=[
            (7, gettext_lazy("7 days")),
            (30, gettext_lazy("30 days")),
            (90, gettext_lazy("90 days")),
            (180, gettext_lazy("180 days")),
            (365, gettext_lazy("1 year")),
        ],
        coerce=int,
        initial=tokens.DEFAULT_DAYS,
        required=False,
        label=gettext_lazy("Valid for"),
    )
    scope = forms.ChoiceField(
        choices=[
            (Scope.READ, gettext_lazy("Read: jobs, logs, usage")),
            (Scope.SUBMIT, gettext_lazy("Submit: also submit, cancel and delete jobs, open shells")),
            (Scope.ADMIN, gettext_lazy("Everything that you may do")),
        ],
        initial=Scope.SUBMIT,
        required=False,
        label=gettext_lazy("What may it do?"),
    )
    project = forms.ModelChoiceField(
        queryset=Project.objects.none(),
        to_field_name="name",
        required=False,
        empty_label=gettext_lazy("All projects of yours, and what belongs to no project"),
        label=gettext_lazy("In which project?"),
    )
    elevated = forms.BooleanField(
        required=False, label=gettext_lazy("May also make tokens, give admin rights and make login links")
    )

    def __init__(self, user: User, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        projects = access.visible(user, Project.objects.filter(archived_at=None).order_by("name"))
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]


class DeviceLogin(NewToken):
    """What the command line client gets, whose code a person confirms."""

    code = forms.CharField(max_length=20, label=gettext_lazy("The code that your terminal shows"))
    name = None  # type: ignore[assignment]
    elevated = None  # type: ignore[assignment]


class ChangePassword(forms.Form):
    old_password = forms.CharField(
        label=gettext_lazy("Old password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new_password1 = forms.CharField(
        strip=False, label=gettext_lazy("New password"), widget=forms.PasswordInput(attrs=NEW)
    )
    new_password2 = forms.CharField(
        strip=False, label=gettext_lazy("New password again"), widget=forms.PasswordInput(attrs=NEW)
    )

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        _compare(self, typed, "new_password1", "new_password2")
        return typed


class Confirm(forms.Form):
    """Asks for the password again (console/auth/login/confirmation.py)."""

    confirm_password = forms.CharField(
        strip=False,
        label=gettext_lazy("Your password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )

    def __init__(self, has_second_factor: bool, *given: Any) -> None:
        super().__init__(*given)
        if has_second_factor:
            self.fields["confirm_password"].label = _("Your password, or a code from your app")


class Code(forms.Form):
    """Asks for a code of the second factor."""

    code = forms.CharField(
        max_length=40,
        label=gettext_lazy("Code"),
        widget=forms.TextInput(
            attrs={
                "autocomplete": "one-time-code",
                "autofocus": True,
                "inputmode": "text",
                "spellcheck": "false",
            }
        ),
    )


class NewPerson(forms.Form):
    username = forms.CharField(
        max_length=150,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("They log in with it. Letters, digits and @ . + - _"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        required=False,
        strip=False,
        help_text=gettext_lazy(
            "Leave it empty to get a link with which the person sets a password. You pass the link on."
        ),
        widget=forms.PasswordInput(attrs=NEW),
    )
    member = forms.BooleanField(
        required=False, initial=True, label=gettext_lazy("Submitter in the project default")
    )
    admin = forms.BooleanField(
        required=False, label=gettext_lazy("Admin of this Trainyard: may do everything")
    )
    confirm_password = forms.CharField(
        required=False,
        strip=False,
        label=gettext_lazy("Your own password"),
        help_text=gettext_lazy("Only to add an admin: you gave your password more than an hour ago."),
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


class NewPassword(forms.Form):
    password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        help_text=gettext_lazy("At least 10 characters, and not a common password."),
        widget=forms.PasswordInput(attrs={**NEW, "autofocus": True}),
    )
    again = forms.CharField(
        strip=False, label=gettext_lazy("Password again"), widget=forms.PasswordInput(attrs=NEW)
    )

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        _compare(self, typed, "password", "again")
        return typed
