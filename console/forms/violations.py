"""Find the form field that a violation of the CustomJob document is about, and word the violation for that field."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django import forms

from jobs.rules.scheduling.order import LABEL
from jobs.rules.spec.parse import Violation

JOB_FIELDS = {
    "display_name": "display_name",
    "location": "location",
    "labels": "labels",
    f"labels.{LABEL}": "priority",
    "job_spec.scheduling.strategy": "strategy",
    "job_spec.scheduling.max_wait_duration": "max_wait_duration",
    "job_spec.scheduling.timeout": "timeout",
    "job_spec.scheduling.disable_retries": "disable_retries",
    "job_spec.scheduling.restart_job_on_worker_restart": "restart_job_on_worker_restart",
    "job_spec.base_output_directory": "base_output_directory",
    "job_spec.enable_web_access": "web_access",
}
POOL_FIELDS = {
    "replica_count": "replica_count",
    "machine_spec.machine_type": "machine_type",
    "machine_spec.accelerator_type": "accelerator_type",
    "machine_spec.accelerator_count": "accelerator_count",
    "container_spec.env": "env",
    "container_spec": "program",
}
IN_POOL = re.compile(r"job_spec\.worker_pool_specs\[(\d)\]\.?(.*)")
_ENV = re.compile(r"container_spec\.env\[(\d+)\](?:\.(\w+))?")


def field_of(path: str, fields: Mapping[str, str]) -> str | None:
    """Return the field for the longest prefix of the path that the form knows, or None."""
    for prefix in sorted(fields, key=len, reverse=True):
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return fields[prefix]
    return None


def form_message(violation: Violation) -> str:
    """Word a violation for which the form has no field: with its path, unless it is about the job as a whole."""
    whole = violation.field == "job_spec.worker_pool_specs"
    return violation.description if whole else f"{violation.field}: {violation.description}"


def field_message(field: forms.BoundField, violation: Violation) -> str:
    """Word a violation for the field that it is shown at."""
    row = _ENV.search(violation.field)
    if row:
        return f"Row {int(row[1]) + 1}: the {row[2] or 'variable'} {violation.description}"
    if field.name == "program" and not str(field.value() or "").strip():
        return f"{field.label} is required."
    whole_sentence = violation.description[:1].isupper()
    return violation.description if whole_sentence else f"{field.label} {violation.description}"
