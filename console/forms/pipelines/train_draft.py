"""The form of the page Train new model: a job with its pools, and the model that it is to leave, as a TrainingPipeline.

It has the fields of the new-job form under the names that the steps of Vertex AI's page have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.code_fields import CodeFields
from console.forms.job_fields import JobFields
from console.forms.jobs import Draft, JobDestination
from console.forms.pipelines.model_fields import MODEL_FIELDS, ModelFields
from console.forms.pool_fields import PoolFields
from console.forms.pool_tasks import IMAGE, KINDS
from console.forms.violations import field_of
from jobs.rules.spec.parse import Violation
from jobs.rules.spec.pipeline import CUSTOM, INPUTS

# An image first, under the word that Vertex AI's page has for it.
CONTAINERS = (
    (IMAGE, gettext_lazy("Custom container")),
    *sorted((kind for kind in KINDS if kind[0] != IMAGE), key=lambda kind: kind[0] != "package"),
)
NEEDS_DIRECTORY = "model_to_upload.artifact_uri"
EMPTY: dict[str, Any] = {
    "jobSpec": {"workerPoolSpecs": [{"containerSpec": {"env": [{"name": "PYTHONUNBUFFERED", "value": "1"}]}}]}
}


class TrainDraft(Draft):
    """`model`: what the form has besides the job."""

    def __init__(
        self,
        job: JobFields,
        code: CodeFields,
        pools: list[PoolFields],
        made_from: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(job, code, pools, made_from)
        self.model = ModelFields(job.data, prefix="model") if job.is_bound else ModelFields(prefix="model")
        job.fields["web_access"].label = _("Enable training debugging")
        job.fields["web_access"].help_text = _(
            "Shells open in the running replicas, with the same rights as the training code."
        )
        for pool in pools:
            kind = pool.fields["kind"]
            assert isinstance(kind, forms.ChoiceField)
            kind.choices = CONTAINERS

    @classmethod
    def empty(cls, chosen: JobDestination) -> TrainDraft:
        draft = cls.from_document(EMPTY, chosen)
        draft.pools[0].initial["kind"] = IMAGE
        return draft

    def pipeline_of(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The TrainingPipeline that makes this job."""
        return {
            "displayName": job.get("displayName", ""),
            **({"labels": job["labels"]} if job.get("labels") else {}),
            "trainingTaskDefinition": CUSTOM,
            "trainingTaskInputs": job["jobSpec"],
            **self.model.in_pipeline(str(job.get("displayName", ""))),
        }

    def add_violations(self, violations: Iterable[Violation]) -> None:
        super().add_violations(_without_directory(each) for each in violations)

    @property
    def _used(self) -> list[forms.Form]:
        return [*super()._used, self.model]

    def _place(self, path: str) -> tuple[forms.Form, str | None]:
        if path == NEEDS_DIRECTORY:
            return self.job, "base_output_directory"
        field = field_of(path, MODEL_FIELDS)
        if field == "name" and not self.model["name"].value():
            return self.job, "display_name"  # the model has the name of the training
        if field:
            return self.model, field
        return super()._place(re.sub(rf"^{INPUTS}\b", "job_spec", path))


def _without_directory(violation: Violation) -> Violation:
    """The form has one field for the place of the outputs and of the model."""
    if violation.field != NEEDS_DIRECTORY:
        return violation
    text = _(
        "The output directory is required where the training leaves a model: the code writes the model below it."
    )
    return Violation(violation.field, text)
