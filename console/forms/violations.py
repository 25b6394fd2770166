"""Find the form field that a violation of the CustomJob document is about, and word the violation for that field."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django import forms
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.forms.pool_tasks import IMAGE
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
    "python_package_spec.env": "env",
    "python_package_spec.executor_image_uri": "executor",
    "python_package_spec.python_module": "module",
    "python_package_spec.args": "args",
    "python_package_spec": "packages",
    "trainyard.runtime": "runtime",
    "trainyard.shm_mb": "shm_mb",
    "trainyard.wire": "wire",
}
# Where the pool runs an image.
IMAGE_FIELDS = {
    **POOL_FIELDS,
    "container_spec.image_uri": "image",
    "container_spec.args": "args",
    "container_spec": "command",
}
CODE = "trainyard.code"
CODE_FIELDS = {
    f"{CODE}.git.url": "git_url",
    f"{CODE}.git.revision": "git_revision",
    # Also what is wrong with the secret itself, which is looked up for the repository as a whole.
    f"{CODE}.git": "git_secret",
    f"{CODE}.directory": "directory",
    CODE: "stored",
}
# Fields that a person left empty are said to be missing, and not what their text must be.
_REQUIRED = ("program", "image", "packages", "module")
IN_POOL = re.compile(r"job_spec\.worker_pool_specs\[(\d)\]\.?(.*)")
_ENV = re.compile(r"(?:container|python_package)_spec\.env\[(\d+)\](?:\.(\w+))?")


def field_of(path: str, fields: Mapping[str, str]) -> str | None:
    """Return the field for the longest prefix of the path that the form knows, or None."""
    for prefix in sorted(fields, key=len, reverse=True):
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return fields[prefix]
    return None


def pool_field_of(path: str, kind: str) -> str | None:
    """The same for a path in a pool that runs a task of this kind."""
    return field_of(path, IMAGE_FIELDS if kind == IMAGE else POOL_FIELDS)


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
    if field.name in _REQUIRED and not str(field.value() or "").strip():
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
