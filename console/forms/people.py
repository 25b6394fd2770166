"""Forms about people: logging in, accounts, passwords, and tokens for scripts."""

from __future__ import annotations

from typing import Any

from django import forms

NEW = {"autocomplete": "new-password"}


class Setup(forms.Form):
    username = forms.CharField(
        max_length=150,
        label="Your name",
        help_text="You log in with it. Letters, digits and @ . + - _",
        widget=forms.TextInput(
            attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        ),
    )
    password = forms.CharField(
        strip=False,
        help_text="At least 10 characters, and not a common password.",
        widget=forms.PasswordInput(attrs=NEW),
    )
    again = forms.CharField(strip=False, label="Password again", widget=forms.PasswordInput(attrs=NEW))

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if typed.get("password") and typed.get("again") and typed["password"] != typed["again"]:
            self.add_error("again", "The two passwords differ. Type the same password twice.")
        return typed


class Login(forms.Form):
    username = forms.CharField(
        max_length=150,
        label="Name",
        widget=forms.TextInput(
            attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}
        ),
    )
    password = forms.CharField(
        strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )
    next = forms.CharField(required=False, widget=forms.HiddenInput)


class NewToken(forms.Form):
    name = forms.CharField(
        max_length=100, label="What is it for?", help_text="For example: laptop, nightly CI."
    )


class NewPerson(forms.Form):
    username = forms.CharField(
        max_length=150,
        label="Name",
        help_text="They log in with it. Letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    password = forms.CharField(
        required=False,
        strip=False,
        help_text="Leave it empty to get a link with which the person sets a password. You pass the link on.",
        widget=forms.PasswordInput(attrs=NEW),
    )
    member = forms.BooleanField(required=False, initial=True, label="Submitter in the project default")
    admin = forms.BooleanField(required=False, label="Admin of this Trainyard: may do everything")


class NewPassword(forms.Form):
    password = forms.CharField(
        strip=False,
        help_text="At least 10 characters, and not a common password.",
        widget=forms.PasswordInput(attrs={**NEW, "autofocus": True}),
    )
    again = forms.CharField(strip=False, label="Password again", widget=forms.PasswordInput(attrs=NEW))

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if typed.get("password") and typed.get("again") and typed["password"] != typed["again"]:
            self.add_error("again", "The two passwords differ. Type the same password twice.")
        return typed
