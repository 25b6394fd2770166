"""Forms about who is notified of what, and about the idle rule of a project."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.validators import validate_email
from django.utils.translation import gettext_lazy

from agents.infra.sentences import shown
from jobs import idle_rule
from jobs.models.notifications import Way
from jobs.notifications import webhook
from jobs.notifications.sender import NO_MAIL
from jobs.rules.notifications import EVENTS, USUAL

CHOICES = [(event, gettext_lazy(words[0].upper() + words[1:])) for event, words in EVENTS.items()]
HELP = {
    Way.MAIL: gettext_lazy("An e-mail address."),
    Way.SLACK: gettext_lazy(
        "The address of an incoming webhook of Slack, Mattermost or a compatible service."
    ),
    Way.HOOK: gettext_lazy("Receives each event as JSON, signed with a secret that is shown once."),
}


class Events(forms.Form):
    """The events that a target is notified of."""

    events = forms.MultipleChoiceField(
        choices=CHOICES, initial=list(USUAL), label=gettext_lazy("When"), widget=forms.CheckboxSelectMultiple
    )
    wait_hours = forms.FloatField(
        min_value=0.02,
        max_value=10_000,
        initial=4,
        label=gettext_lazy("A job waits for too long after, in hours"),
        required=False,
    )

    def clean_wait_hours(self) -> float:
        return float(self.cleaned_data["wait_hours"] or 4)


class NewTarget(Events):
    way = forms.ChoiceField(
        choices=[(way, gettext_lazy(words)) for way, words in Way.choices],
        label=gettext_lazy("How"),
        initial=Way.MAIL,
    )
    address = forms.CharField(
        max_length=1000,
        label=gettext_lazy("Address"),
        help_text=gettext_lazy(
            "An e-mail address, or the https:// address of a webhook. It is stored encrypted."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    field_order = ["way", "address", "events", "wait_hours"]

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        way, address = typed.get("way"), str(typed.get("address", "")).strip()
        if not address:
            return typed
        try:
            if way == Way.MAIL:
                validate_email(address)
            else:
                webhook.check_before_storing(address, settings.TRAINYARD.notify_private)
        except webhook.WebhookRefused as refused:
            self.add_error("address", shown(refused.message))
        except forms.ValidationError as problem:
            self.add_error("address", problem)
        if way == Way.MAIL and not settings.EMAIL_HOST:
            self.add_error("way", shown(NO_MAIL))
        return {**typed, "address": address}


class IdleRule(forms.Form):
    minutes = forms.IntegerField(
        required=False,
        min_value=idle_rule.MIN_MINUTES,
        max_value=idle_rule.MAX_MINUTES,
        label=gettext_lazy("Minutes for which all GPUs of a job are at 0 %"),
        help_text=gettext_lazy("Empty: no rule."),
    )
    stops = forms.TypedChoiceField(
        choices=[("", gettext_lazy("Notify")), ("1", gettext_lazy("Notify, and cancel the job"))],
        coerce=bool,
        required=False,
        label=gettext_lazy("Then"),
    )
