"""A job as JSON, and as programs that submit it: trainyard, curl, Google's SDK, gcloud. None has values of secrets."""

from __future__ import annotations

import json
import pprint
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from jobs.rules.spec.secret_variables import without_values

# These are texts with meaning of their own: keys of maps stay as they are.
_MAPS = ("labels",)
_DURATION = re.compile(r"(\d+)(?:\.(\d{1,9}))?s")
_DURATIONS = ("timeout", "maxWaitDuration")
_NUMBERS = ("replicaCount", "bootDiskSizeGb")
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Code:
    """`note` stands above the text: what has to be filled in, or why there is no text."""

    name: str
    text: str
    note: str = ""


def of(document: Mapping[str, Any], project: str, location: str, base: str) -> tuple[Code, ...]:
    """`document` is canonical; `base` is the address of this deployment, without a slash at its end."""
    shown: Any = without_values(document)
    secrets = _secret_names(shown.get("jobSpec", {}))
    inline = ", ".join(inline_secrets(shown.get("jobSpec", {})))
    fill = (
        _("Fill in the value of {names}: values of secrets are not shown.").format(names=inline)
        if inline
        else ""
    )
    unknown = bool(secrets)
    cannot = _("{tool} has no field for secret variables. Use trainyard or curl.")
    if any("trainyard" in pool for pool in document.get("jobSpec", {}).get("workerPoolSpecs", ())):
        unknown, cannot = (
            True,
            _("{tool} has no field for the runtime and the code of a pool. Use trainyard or curl."),
        )
    return (
        Code("JSON", as_json(shown), fill),
        Code("trainyard", _trainyard(shown, project, location), fill),
        Code("curl", curl(shown, project, location, base), fill),
        _unless(
            unknown, Code("SDK", _sdk(shown, project, location, base)), cannot.format(tool=_("Google's SDK"))
        ),
        _unless(
            unknown, Code("gcloud", _gcloud(shown, project, location, base)), cannot.format(tool="gcloud")
        ),
    )


def _unless(unknown: bool, code: Code, why: str) -> Code:
    return Code(code.name, "", why) if unknown else code


def inline_secrets(job_spec: Mapping[str, Any]) -> list[str]:
    """The names of the secret variables whose values come with the job."""
    return [name for name, is_inline in _secret_names(job_spec).items() if is_inline]


def _secret_names(job_spec: Mapping[str, Any]) -> dict[str, bool]:
    """The secret variables, and whether their values come with the job."""
    pools = job_spec.get("workerPoolSpecs", ())
    tasks = [pool.get("pythonPackageSpec") or pool.get("containerSpec", {}) for pool in pools]
    variables = [each for task in tasks for each in task.get("env", ())]
    return {
        each["name"]: bool(each.get("secret"))
        for each in variables
        if each.get("secret") or each.get("valueFrom")
    }


def as_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _trainyard(document: Mapping[str, Any], project: str, location: str) -> str:
    place = f"--project={shlex.quote(project)} --location={shlex.quote(location)}"
    return f"trainyard submit - {place} <<'JSON'\n{as_json(document)}\nJSON"


def curl(
    document: Mapping[str, Any], project: str, location: str, base: str, collection: str = "customJobs"
) -> str:
    """The request that creates what the document describes. It has no values of secrets."""
    url = f"{base}/v1/projects/{project}/locations/{location}/{collection}"
    return (
        f"curl --fail-with-body -X POST {shlex.quote(url)} \\\n"
        "  -H \"Authorization: Bearer $TRAINYARD_TOKEN\" -H 'Content-Type: application/json' \\\n"
        f"  --data-binary @- <<'JSON'\n{as_json(document)}\nJSON"
    )


def _sdk(document: Mapping[str, Any], project: str, location: str, base: str) -> str:
    job = pprint.pformat(for_python(document), width=WIDTH, sort_dicts=False)
    return f"""import os

from google.cloud.aiplatform_v1 import JobServiceClient
from google.oauth2.credentials import Credentials

client = JobServiceClient(
    transport="rest",
    client_options={{"api_endpoint": {base!r}}},
    credentials=Credentials(token=os.environ["TRAINYARD_TOKEN"]),
)
custom_job = {job}
job = client.create_custom_job(
    parent={f"projects/{project}/locations/{location}"!r}, custom_job=custom_job
)
print(job.name)"""


def _gcloud(document: Mapping[str, Any], project: str, location: str, base: str) -> str:
    labels = ",".join(f"{key}={value}" for key, value in document.get("labels", {}).items())
    flags = [
        f"--project={project}",
        f"--region={location}",
        f"--display-name={document.get('displayName', '')}",
        *([f"--labels={labels}"] if labels else []),
    ]
    return (
        f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM={shlex.quote(f'{base}/')}\n"
        "export CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=~/trainyard-token\n"
        f"gcloud ai custom-jobs create {' '.join(map(shlex.quote, flags))} \\\n"
        f"  --config=/dev/stdin <<'JSON'\n{as_json(document.get('jobSpec', {}))}\nJSON"
    )


def for_python(value: Any, name: str = "") -> Any:
    """The value with the names and types of Google's Python classes."""
    if isinstance(value, Mapping):
        if name in _MAPS:
            return dict(value)
        return {_snake(key): for_python(each, key) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_python(each) for each in value]
    if name in _NUMBERS and str(value).isdigit():
        return int(value)
    duration = _DURATION.fullmatch(value) if name in _DURATIONS and isinstance(value, str) else None
    if duration is None:
        return value
    nanos = int(Decimal(f"0.{duration[2] or 0}") * 10**9)
    return {"seconds": int(duration[1]), **({"nanos": nanos} if nanos else {})}


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
