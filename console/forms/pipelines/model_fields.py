"""The fields of the page Train new model that a job does not have: the training method, and the model that is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.fields import PlainText, area_of_text, line_of_text

NO_DATASET, CUSTOM_TRAINING = "none", "custom"
NEW_MODEL, NEW_VERSION, NO_MODEL = "model", "version", "nothing"
LEAVES = (
    (NEW_MODEL, gettext_lazy("A new model")),
    (NEW_VERSION, gettext_lazy("A new version of a model")),
    (NO_MODEL, gettext_lazy("No model")),
)
# The value of a field whose text cannot be read.
NOTHING: dict[str, Any] = {"leaves": NEW_MODEL, "name": "", "model_id": "", "parent": "", "description": ""}
# The field for each part of a TrainingPipeline that the form of a job does not have.
MODEL_FIELDS = {
    "training_task_definition": "method",
    "input_data_config": "dataset",
    "model_to_upload.display_name": "name",
    "model_to_upload.description": "description",
    "model_to_upload.version_description": "description",
    "model_id": "model_id",
    "parent_model": "parent",
}


class ModelFields(forms.Form):
    dataset = forms.ChoiceField(
        label=gettext_lazy("Dataset"),
        required=False,
        choices=[(NO_DATASET, gettext_lazy("No managed dataset"))],
        widget=forms.RadioSelect,
        initial=NO_DATASET,
        help_text=gettext_lazy(
            "Tell the training code where its data is, by an argument or a variable: a bucket, or a directory that the "
            "hosts have."
        ),
        error_messages={
            "invalid_choice": gettext_lazy(
                "Managed data sets are not supported: choose “No managed dataset”, and tell the training code where "
                "the data is, by an argument or a variable."
            )
        },
    )
    method = forms.ChoiceField(
        label=gettext_lazy("Model training method"),
        required=False,
        choices=[(CUSTOM_TRAINING, gettext_lazy("Custom training"))],
        widget=forms.RadioSelect,
        initial=CUSTOM_TRAINING,
        error_messages={
            "invalid_choice": gettext_lazy(
                "AutoML is not supported: choose “Custom training”, and bring the program that trains."
            )
        },
    )
    leaves = forms.ChoiceField(
        label=gettext_lazy("What the training leaves"),
        required=False,
        choices=LEAVES,
        widget=forms.RadioSelect,
        initial=NEW_MODEL,
    )
    name = forms.CharField(
        label=gettext_lazy("Name of the model"),
        required=False,
        help_text=gettext_lazy("Empty: the name of the training."),
        widget=line_of_text(maxlength=128),
    )
    model_id = forms.CharField(
        label=gettext_lazy("Model ID"),
        required=False,
        help_text=gettext_lazy("Lowercase letters, digits, _ and -. Empty: a number."),
        widget=line_of_text(maxlength=63, spellcheck="false"),
    )
    parent = forms.CharField(
        label=gettext_lazy("Model that gets a version"),
        required=False,
        help_text=gettext_lazy("The ID of a model of the project."),
        widget=line_of_text(list="models-of-project", spellcheck="false"),
    )
    description = PlainText(
        label=gettext_lazy("Description"), required=False, widget=area_of_text("lines", rows=2)
    )

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if typed.get("leaves") == NEW_VERSION and not typed.get("parent", "").strip():
            self.add_error("parent", _("{field} is required.").format(field=self["parent"].label))
        return typed

    def in_pipeline(self, display_name: str) -> dict[str, Any]:
        """The fields of the TrainingPipeline about the model. `display_name`: of the pipeline."""
        typed: Mapping[str, Any] = {**NOTHING, **(self.cleaned_data if self.is_bound else {})}
        leaves = typed["leaves"] or NEW_MODEL
        if leaves == NO_MODEL:
            return {}
        about = "description" if leaves == NEW_MODEL else "versionDescription"
        upload = {
            "displayName": typed["name"].strip() or display_name,
            **({about: typed["description"]} if typed["description"].strip() else {}),
        }
        if leaves == NEW_VERSION:
            return {"modelToUpload": upload, "parentModel": typed["parent"].strip()}
        return {
            "modelToUpload": upload,
            **({"modelId": typed["model_id"].strip()} if typed["model_id"].strip() else {}),
        }
