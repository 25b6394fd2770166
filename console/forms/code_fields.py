"""The fields of the new-job form about the code that a job brings, and their part of the CustomJob document.

In a document each pool brings code of its own. The form has one for the whole job, which reducers alone do not bring;
a document whose pools bring different code is shown as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.fields import line_of_text
from console.forms.pool_tasks import are_reducers

NONE, STORED, GIT = "none", "stored", "git"
SOURCES = (
    (NONE, gettext_lazy("None: it is on the hosts, or in the image")),
    (STORED, gettext_lazy("Files")),
    (GIT, gettext_lazy("Git repository")),
)
# The prefix of objects. Without it, files are named by their SHA-256.
OBJECT = "gs://"
# What the fields hold where their text cannot be read.
NO_CODE: dict[str, Any] = {
    "source": NONE,
    "stored": "",
    "git_url": "",
    "git_revision": "",
    "git_secret": "",
    "directory": "",
}


class CodeFields(forms.Form):
    source = forms.ChoiceField(
        label=gettext_lazy("Code"),
        required=False,
        choices=SOURCES,
        widget=forms.RadioSelect,
        initial=NONE,
    )
    stored = forms.CharField(
        label=gettext_lazy("Archive of the project's storage"),
        required=False,
        help_text=gettext_lazy("A tar or zip file: gs://bucket/name, or the SHA-256 of an upload."),
        widget=line_of_text(list="code-archives", spellcheck="false"),
    )
    git_url = forms.CharField(
        label=gettext_lazy("Repository"),
        required=False,
        widget=line_of_text(placeholder="https://git.example.com/lab/train.git", spellcheck="false"),
    )
    git_revision = forms.CharField(
        label=gettext_lazy("Revision"),
        required=False,
        help_text=gettext_lazy("A branch, a tag or a commit. The job keeps the commit that it was."),
        widget=line_of_text(placeholder="main", spellcheck="false"),
    )
    git_secret = forms.CharField(
        label=gettext_lazy("Secret that opens it"),
        required=False,
        help_text=gettext_lazy("The name of a stored secret with a key, a token, or user:password."),
        widget=line_of_text(list="stored-secrets", spellcheck="false"),
    )
    directory = forms.CharField(
        label=gettext_lazy("Put into"),
        required=False,
        help_text=gettext_lazy("A directory below the work directory. Empty: the work directory itself."),
        widget=line_of_text(placeholder="src", spellcheck="false"),
    )

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        source = typed.get("source")
        if source == STORED and not typed.get("stored"):
            self.add_error("stored", _("Upload a file or a folder, or name one that is stored."))
        if source == GIT and not typed.get("git_url"):
            self.add_error("git_url", _("{field} is required.").format(field=self["git_url"].label))
        if source == GIT and not typed.get("git_revision"):
            self.add_error("git_revision", _("{field} is required.").format(field=self["git_revision"].label))
        return typed

    def document(self) -> dict[str, Any]:
        """What each pool brings, as `trainyard.code`; empty if it brings none."""
        typed = {**NO_CODE, **self.cleaned_data}
        place = {"directory": typed["directory"]} if typed["directory"] else {}
        if typed["source"] == STORED and typed["stored"]:
            is_object = typed["stored"].startswith(OBJECT)
            return {"archiveUri" if is_object else "artifact": typed["stored"], **place}
        if typed["source"] == GIT:
            secret = {"credentialSecret": typed["git_secret"]} if typed["git_secret"] else {}
            return {"git": {"url": typed["git_url"], "revision": typed["git_revision"], **secret}, **place}
        return {}

    @property
    def named_artifact(self) -> str:
        """The SHA-256 of the upload that the form names, if it names one."""
        named = str(self["stored"].value() or "").strip()
        return "" if named.startswith(OBJECT) else named


def can_show(pools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all pools in use bring the same, but for reducers."""
    brought = _brought(pools)
    return all(code == brought[0] for code in brought)


def initial(pools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of the fields, from the pools of a document in its canonical form."""
    code = next(iter(_brought(pools)), {})
    git = code.get("git") or {}
    stored = code.get("archiveUri") or code.get("artifact") or ""
    return {
        "source": GIT if git else STORED if stored else NONE,
        "stored": stored,
        "git_url": git.get("url", ""),
        "git_revision": git.get("revision", ""),
        "git_secret": git.get("credentialSecret", ""),
        "directory": code.get("directory", ""),
    }


def _brought(pools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [_code(pool) for pool in pools if pool and not are_reducers(pool)]


def _code(pool: Mapping[str, Any]) -> Mapping[str, Any]:
    return pool.get("trainyard", {}).get("code") or {}
