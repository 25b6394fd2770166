"""The form of a machine type. jobs.scheduling.machine_types decides what is valid."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from jobs.scheduling.machine_types import MAX_CPUS, MAX_GPUS, MAX_MEMORY_MB, MIN_CPUS


class DefineType(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        help_text=gettext_lazy("Lower-case letters, digits and dashes: lab-gpu-4."),
    )
    location = forms.CharField(
        label=gettext_lazy("Location"),
        max_length=63,
        required=False,
        help_text=gettext_lazy("Where jobs can request it. Empty: everywhere."),
        widget=forms.TextInput(attrs={"list": "locations"}),
    )
    cpus = forms.FloatField(label=gettext_lazy("CPUs"), min_value=MIN_CPUS, max_value=MAX_CPUS)
    memory_mb = forms.IntegerField(
        label=gettext_lazy("Memory in MiB"),
        min_value=0,
        max_value=MAX_MEMORY_MB,
        help_text=gettext_lazy("The nominal memory of the machine."),
    )
    accelerator_type = forms.CharField(
        max_length=63,
        required=False,
        label=gettext_lazy("GPU type"),
        widget=forms.TextInput(attrs={"list": "gpu-types", "autocapitalize": "none"}),
    )
    accelerator_count = forms.IntegerField(
        required=False, label=gettext_lazy("GPUs"), min_value=0, max_value=MAX_GPUS
    )
    note = forms.CharField(label=gettext_lazy("Note"), max_length=200, required=False)
