"""The forms of stored files: a new bucket, a file for a bucket, a file for jobs."""

from __future__ import annotations

from django import forms
from django.core.validators import RegexValidator
from django.utils.translation import gettext_lazy

from console.forms.fields import line_of_text
from jobs.artifacts.expiry import MOST_DAYS

KINDS = {
    "archive": gettext_lazy("archive of code (tar or zip)"),
    "package": gettext_lazy("Python package (sdist or wheel)"),
    "image": gettext_lazy("archive of a container image"),
}


class NewBucket(forms.Form):
    name = forms.CharField(
        max_length=63,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy(
            "3 to 63 small letters, digits and dashes. No other project can use the same name."
        ),
        widget=line_of_text(placeholder="vision-runs"),
    )


class KeepDays(forms.Form):
    keep_days = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_DAYS,
        label=gettext_lazy("Keep objects for so many days"),
        help_text=gettext_lazy("Older ones are deleted by themselves. Empty: none is."),
    )


class NewArtifact(forms.Form):
    """`file` comes last in the form, so that a large one is read after the rest."""

    kind = forms.ChoiceField(label=gettext_lazy("What it is"), choices=list(KINDS.items()))
    file = forms.FileField(label=gettext_lazy("File"), max_length=255)


class NewCode(forms.Form):
    """An archive of code for the new-job form. Scripts make one of a folder, or of a file that is none."""

    file = forms.FileField(
        label=gettext_lazy("Upload an archive"),
        max_length=255,
        validators=[
            RegexValidator(
                r"(?i)\.(?:zip|tar|tgz|tbz2?|txz|tar\.(?:gz|bz2|xz))$",
                gettext_lazy("Choose a tar or zip file, such as code.tar.gz."),
                # Django has a text of its own for "invalid", which would win.
                "no_archive",
            )
        ],
    )


class NewObject(forms.Form):
    folder = forms.CharField(required=False, max_length=1024, widget=forms.HiddenInput)
    file = forms.FileField(label=gettext_lazy("File"), max_length=255)
