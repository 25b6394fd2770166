"""The form of what a person chooses for the frame of pages."""

from __future__ import annotations

from collections.abc import Iterator

from django import forms
from django.utils.translation import gettext_lazy as _

from console.auth import preferences
from jobs.notifications.digest import Period


def _zones() -> Iterator[tuple[str, object]]:
    yield "", _("That of this browser")
    yield from ((name, name.replace("_", " ")) for name in preferences.time_zones())


class FramePreferences(forms.Form):
    time_zone = forms.ChoiceField(
        label=_("Time zone"),
        choices=_zones,
        required=False,
        help_text=_(
            "Times are shown in it. UTC appears when you point at a time, and by the key u on all of them."
        ),
    )
    digest = forms.ChoiceField(
        label=_("Digest by e-mail"),
        choices=[("", _("None")), (Period.DAILY, _("Every morning")), (Period.WEEKLY, _("Monday mornings"))],
        required=False,
        help_text=_("Your jobs that ended, failed or wait; for admins also hosts with trouble."),
    )
    single_keys = forms.BooleanField(
        label=_("Keys of one letter"),
        required=False,
        help_text=_(
            "/, ?, j, k, x, u and g. Switch them off if you dictate by voice, or press them by accident. Ctrl+K stays."
        ),
    )
