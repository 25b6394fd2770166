"""Forms about the people who use Trainyard: who they are, and what their scripts may use."""

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
        help_text="At least 10 characters, not a common one.",
        widget=forms.PasswordInput(attrs=NEW),
    )
    again = forms.CharField(strip=False, label="Password again", widget=forms.PasswordInput(attrs=NEW))

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if typed.get("password") and typed.get("again") and typed["password"] != typed["again"]:
            self.add_error("again", "The two passwords are not the same.")
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
        help_text="Empty: you get a link with which they set one themselves.",
        widget=forms.PasswordInput(attrs=NEW),
    )
    member = forms.BooleanField(
        required=False, initial=True, label="Submitter of the project default, and sees its jobs"
    )
    admin = forms.BooleanField(required=False, label="Admin of this Trainyard: may do everything")


class NewPassword(forms.Form):
    password = forms.CharField(
        strip=False,
        help_text="At least 10 characters, not a common one.",
        widget=forms.PasswordInput(attrs={**NEW, "autofocus": True}),
    )
    again = forms.CharField(strip=False, label="Password again", widget=forms.PasswordInput(attrs=NEW))

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if typed.get("password") and typed.get("again") and typed["password"] != typed["again"]:
            self.add_error("again", "The two passwords are not the same.")
        return typed
