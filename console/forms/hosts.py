"""Forms about hosts. agents.hosts.adding decides which names and addresses are valid."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents.hosts.data_address import choices
from agents.hosts.pasted_keys import MAX_TEXT
from agents.models import Host
from console.forms.fields import DurationText, PlainText
from jobs.host_sync import recovery_mode


class AddHost(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        help_text=gettext_lazy("Letters, digits, - and _, for example gpu-01."),
    )
    address = forms.CharField(
        label=gettext_lazy("Address"), max_length=255, help_text=gettext_lazy("A host name or an IP address.")
    )
    user = forms.CharField(
        max_length=64,
        label=gettext_lazy("Login"),
        help_text=gettext_lazy("No root needed. Replicas run as this user."),
    )
    port = forms.IntegerField(label=gettext_lazy("Port"), initial=22, min_value=1, max_value=65535)
    location = forms.CharField(
        label=gettext_lazy("Location"),
        max_length=63,
        initial="default",
        help_text=gettext_lazy("A new name makes a new location."),
        widget=forms.TextInput(attrs={"list": "locations"}),
    )
    jump = forms.CharField(
        max_length=1000,
        required=False,
        label=gettext_lazy("Jump hosts"),
        help_text=gettext_lazy("As in ssh -J: user@gate:22,user@inner."),
    )
    login_template = forms.CharField(
        max_length=64,
        required=False,
        label=gettext_lazy("Logins of projects"),
        help_text=gettext_lazy(
            "To keep projects apart on this host: train-{project}. Empty: all jobs run as the login above. "
            "The lock of a GPU does not hold between logins: an idle process of another login on it is not seen."
        ),
        widget=forms.TextInput(attrs={"autocapitalize": "none"}),
    )


_WAY = ("address", "port", "user", "jump")


class EditHost(AddHost):
    """How a host is reached, and its location. Hidden fields keep what the page showed."""

    name = None  # type: ignore[assignment]
    login_template = None  # type: ignore[assignment]
    jump_key = forms.CharField(
        max_length=100,
        required=False,
        label=gettext_lazy("Fingerprint of the jump host"),
        help_text=gettext_lazy("Of a jump host whose key nobody has accepted yet."),
        widget=forms.TextInput(attrs={"autocapitalize": "none", "spellcheck": "false"}),
    )

    def __init__(self, host: Host, data: Mapping[str, str] | None = None) -> None:
        known = {name: getattr(host, name) for name in _WAY} | {"location": host.location.name}
        super().__init__(data, initial={**known, **{f"seen_{name}": value for name, value in known.items()}})
        for name in known:
            like = forms.IntegerField if name == "port" else forms.CharField
            self.fields[f"seen_{name}"] = like(required=name != "jump", widget=forms.HiddenInput)

    @property
    def asks_for_key(self) -> bool:
        return bool(self.errors.get("jump_key") or self.data.get("jump_key"))


class PasteHosts(forms.Form):
    hosts = PlainText(
        label=gettext_lazy("Hosts"),
        help_text=gettext_lazy(
            "One host per line: name user@address:port, then a jump host if one is needed."
        ),
        widget=forms.Textarea(
            attrs={
                "rows": 6,
                "placeholder": "gpu-01 train@10.0.0.11\ngpu-02 train@10.0.0.12:2222",
            }
        ),
    )
    user = forms.CharField(
        max_length=64,
        label=gettext_lazy("Login"),
        help_text=gettext_lazy("For lines that name no user."),
        required=False,
    )
    location = forms.CharField(
        label=gettext_lazy("Location"),
        max_length=63,
        initial="default",
        help_text=gettext_lazy("A new name makes a new location."),
    )


class PasteKeys(forms.Form):
    keys = PlainText(
        label=gettext_lazy("What the hosts print about their keys"),
        help_text=gettext_lazy(
            "The output of ssh-keyscan or ssh-keygen -lf of all hosts, or their fingerprints, one a line. A line that "
            "names a host holds for that host only."
        ),
        max_length=MAX_TEXT,
        widget=forms.Textarea(
            attrs={
                "rows": 8,
                "spellcheck": "false",
                "placeholder": "gpu-01 ssh-ed25519 AAAAC3Nza...\n256 SHA256:... root@gpu-02 (ED25519)",
            }
        ),
    )


class AcceptKey(forms.Form):
    fingerprint = forms.CharField(max_length=100, widget=forms.HiddenInput)


class Cordon(forms.Form):
    message = forms.CharField(
        max_length=500,
        required=False,
        label=gettext_lazy("Reason"),
        help_text=gettext_lazy("Shown to people whose jobs wait for this host."),
    )


class Drain(Cordon):
    deadline = DurationText(
        required=False,
        label=gettext_lazy("Deadline"),
        help_text=gettext_lazy(
            "From now, for example 30m, 2h or 1d. Until then a replica moves when another host has capacity."
        ),
    )
    force = forms.BooleanField(
        required=False, label=gettext_lazy("At the deadline, put the remaining jobs back into the queue")
    )


class Contain(forms.Form):
    pid_namespaces = forms.BooleanField(
        required=False, label=gettext_lazy("Give each new run a PID namespace of its own")
    )


class DataNetwork(forms.Form):
    data_address = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Address for data"),
        help_text=gettext_lazy(
            "Where replicas on other hosts reach those of this host. Holds for runs that start from now on."
        ),
    )

    def __init__(self, host: Host, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data, initial={"data_address": host.data_address})
        found = host.found_address or host.address
        rows = [(address, f"{address} ({name})" if name else address) for name, address in choices(host)]
        field = self.fields["data_address"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("The one that the check finds: {address}").format(address=found)), *rows]


class Logins(forms.Form):
    template = forms.CharField(
        max_length=64,
        required=False,
        label=gettext_lazy("Login names"),
        help_text=gettext_lazy(
            "For example train-{project}, or train-{id} with the project's number. Empty: one login for all."
        ),
        widget=forms.TextInput(attrs={"autocapitalize": "none"}),
    )


class DeclareGone(forms.Form):
    name = forms.CharField(max_length=63, label=gettext_lazy("The host's name, to confirm"))


class BeginRecovery(forms.Form):
    why = forms.CharField(
        max_length=recovery_mode.MAX_WHY,
        label=gettext_lazy("Why"),
        help_text=gettext_lazy("Shown to everybody. For example: restored from the backup of Friday."),
    )
