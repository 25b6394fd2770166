"""A training pipeline as JSON, and as programs that start it: curl, Google's SDK. None has values of secrets."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from console.presenters.new_job.as_code import WIDTH, Code, as_json, curl, for_python, inline_secrets
from jobs.rules.spec.secret_variables import without_values

INPUTS = "trainingTaskInputs"


def of(document: Mapping[str, Any], project: str, location: str, base: str) -> tuple[Code, ...]:
    """`document` is a TrainingPipeline; `base` is the address of this deployment, without a slash at its end."""
    shown: Any = without_values(document)
    inline = inline_secrets(shown.get(INPUTS, {}))
    fill = (
        _("Fill in the value of {names}: values of secrets are not shown.").format(names=", ".join(inline))
        if inline
        else ""
    )
    return (
        Code("JSON", as_json(shown), fill),
        Code("curl", curl(shown, project, location, base, "trainingPipelines"), fill),
        Code("SDK", _sdk(shown, project, location, base), fill),
    )


def _sdk(document: Mapping[str, Any], project: str, location: str, base: str) -> str:
    """The inputs are a free value to Google's client: they keep their names, and everything of ours in them."""
    rest = for_python({name: value for name, value in document.items() if name != INPUTS})
    pipeline = pprint.pformat(
        {**rest, "training_task_inputs": document[INPUTS]}, width=WIDTH, sort_dicts=False
    )
    return f"""import os

from google.cloud.aiplatform_v1 import PipelineServiceClient
from google.oauth2.credentials import Credentials

client = PipelineServiceClient(
    transport="rest",
    client_options={{"api_endpoint": {base!r}}},
    credentials=Credentials(token=os.environ["TRAINYARD_TOKEN"]),
)
training_pipeline = {pipeline}
pipeline = client.create_training_pipeline(
    parent={f"projects/{project}/locations/{location}"!r}, training_pipeline=training_pipeline
)
print(pipeline.name)"""
