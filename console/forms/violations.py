"""Find the form field that a violation of the CustomJob document is about, and word the violation for that field."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django import forms
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
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
    text = shown(violation.description)
    return text if whole else f"{violation.field}: {text}"


def field_message(field: forms.BoundField, violation: Violation) -> str:
    """Word a violation for the field that it is shown at."""
    row, text = _ENV.search(violation.field), shown(violation.description)
    if row:
        return _row_message(int(row[1]) + 1, row[2] or "", text)
    if field.name == "program" and not str(field.value() or "").strip():
        return _("{field} is required.").format(field=field.label)
    # The English says whether it is a sentence of its own: other languages may have no capitals.
    whole_sentence = violation.description[:1].isupper()
    return text if whole_sentence else _("{field} {problem}").format(field=field.label, problem=text)


def _row_message(number: int, part: str, problem: str) -> str:
    texts = {
        "name": _("Row {number}: the name {problem}"),
        "value": _("Row {number}: the value {problem}"),
    }
    text = texts.get(part, _("Row {number}: the variable {problem}"))
    return text.format(number=number, problem=problem)
