"""The form of a machine type. jobs.scheduling.machine_types decides what is valid."""

from __future__ import annotations

from django import forms

from jobs.scheduling.machine_types import MAX_CPUS, MAX_GPUS, MAX_MEMORY_MB, MIN_CPUS


class DefineType(forms.Form):
    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and dashes: lab-gpu-4.")
    location = forms.CharField(
        max_length=63,
        required=False,
        help_text="Where jobs can request it. Empty: everywhere.",
        widget=forms.TextInput(attrs={"list": "locations"}),
    )
    cpus = forms.FloatField(label="CPUs", min_value=MIN_CPUS, max_value=MAX_CPUS)
    memory_mb = forms.IntegerField(
        label="Memory in MiB",
        min_value=0,
        max_value=MAX_MEMORY_MB,
        help_text="The nominal memory of the machine.",
    )
    accelerator_type = forms.CharField(
        max_length=63,
        required=False,
        label="GPU type",
        widget=forms.TextInput(attrs={"list": "gpu-types", "autocapitalize": "none"}),
    )
    accelerator_count = forms.IntegerField(required=False, label="GPUs", min_value=0, max_value=MAX_GPUS)
    note = forms.CharField(max_length=200, required=False)
