"""Parse a TrainingPipeline: a custom task, or one that tunes hyperparameters, and the model that it is to leave.

`training_task_inputs` is a CustomJobSpec, or the fields of a HyperparameterTuningJob, in the style of the client: it is
kept as it was sent, because clients look for their own names in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agents.infra.texts import said
from jobs.rules.spec.json_fields import Complaints, InvalidDocument, MessageReader, camel, shown
from jobs.rules.spec.parse import read_labels
from jobs.rules.spec.secret_variables import without_values

DEFINITIONS = "gs://google-cloud-aiplatform/schema/trainingjob/definition/"
CUSTOM = f"{DEFINITIONS}custom_task_1.0.0.yaml"
TUNING = f"{DEFINITIONS}hyperparameter_tuning_task_1.0.0.yaml"
# Google's names: the backing job of pipeline "nightly" is "nightly-custom-job".
SUFFIXES = {CUSTOM: "-custom-job", TUNING: "-hyperparameter-tuning-job"}
# What a refusal of a task may be about, although it is none of its inputs.
_OF_NO_INPUT = ("display_name", "location", "project", "request_id")
MAX_NAME = 128
MAX_ALIASES = 16
MAX_UPLOAD_BYTES = 256 * 1024
INPUTS = "training_task_inputs"
UPLOAD = "model_to_upload"

_MODEL_ID = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)
_PARENT = re.compile(r"(?:projects/[^/]+/locations/[^/]+/models/)?([A-Za-z0-9_-]{1,63})(?:@[^/]*)?", re.ASCII)
_ALIAS = re.compile(r"[a-z](?:[a-zA-Z0-9-]{0,126}[a-z0-9])?", re.ASCII)
_OUTPUT_ONLY = (
    "name",
    "training_task_metadata",
    "state",
    "error",
    "create_time",
    "start_time",
    "end_time",
    "update_time",
)
# What a Model of Vertex may have besides: kept as it was sent, and given back.
_KEPT_OF_MODEL = (
    "container_spec",
    "predict_schemata",
    "metadata_schema_uri",
    "metadata",
    "explanation_spec",
    "base_model_source",
    "data_stats",
    "etag",
    "pipeline_job",
    "model_source_info",
)
# What the service sets: ignored when a client sends it, and not kept.
_OUTPUT_ONLY_OF_MODEL = (
    "name",
    "version_id",
    "version_create_time",
    "version_update_time",
    "default_checkpoint_id",
    "supported_export_formats",
    "training_pipeline",
    "supported_deployment_resources_types",
    "supported_input_storage_formats",
    "supported_output_storage_formats",
    "create_time",
    "update_time",
    "deployed_models",
    "original_model_info",
    "metadata_artifact",
    "satisfies_pzs",
    "satisfies_pzi",
    "checkpoints",
)


@dataclass(frozen=True, slots=True)
class ModelUpload:
    """The model that a pipeline is to leave. `document`: as it was sent."""

    display_name: str
    artifact_uri: str = ""
    description: str = ""
    version_description: str = ""
    aliases: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`inputs`: as they were sent, without values of secrets. `job`: the document of the CustomJob, or of the
    HyperparameterTuningJob, to be submitted."""

    display_name: str
    definition: str
    labels: Mapping[str, str]
    inputs: Mapping[str, Any]
    job: Mapping[str, Any] = field(repr=False)
    upload: ModelUpload | None = None
    model_id: str = ""
    parent_model: str = ""


def parse_pipeline(document: object) -> Pipeline:
    """The pipeline that a TrainingPipeline document describes. Its inputs are read when the job is submitted.

    Raises InvalidDocument.
    """
    complaints = Complaints()
    fields = MessageReader(document, "", complaints)
    fields.ignore(*_OUTPUT_ONLY)
    display_name = fields.text("display_name", maximum=MAX_NAME)
    if not display_name.strip() and not fields.complained("display_name"):
        fields.complain("display_name", said("is required."))
    labels = read_labels(fields)
    definition = _definition(fields)
    _refuse_unsupported(fields)
    inputs = fields.pairs(INPUTS, maximum=100)
    if not inputs and not fields.complained(INPUTS):
        fields.complain(
            INPUTS, said("is required: the fields of a CustomJobSpec, such as worker_pool_specs.")
        )
    upload = _upload(fields, inputs if definition == CUSTOM else _of_trials(inputs))
    model_id, parent = _model_id(fields, upload), _parent_model(fields, upload)
    fields.close()
    complaints.raise_if_any()
    name = display_name[: MAX_NAME - len(SUFFIXES[definition])] + SUFFIXES[definition]
    job = {"displayName": name, "labels": dict(labels), **_task(definition, inputs)}
    kept: Any = without_values(inputs)
    return Pipeline(display_name, definition, labels, kept, job, upload, model_id, parent)


def about_inputs(refused: InvalidDocument, definition: str) -> InvalidDocument:
    """The same violations of the backing job, with the paths that the fields have in the pipeline."""
    moved = tuple(replace(each, field=in_pipeline(each.field, definition)) for each in refused.violations)
    return InvalidDocument(moved)


def in_pipeline(path: str, definition: str) -> str:
    if definition == CUSTOM:
        return re.sub(r"^job_spec\b", INPUTS, path)
    return path if path in _OF_NO_INPUT else f"{INPUTS}.{path}"


def _task(definition: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs as fields of the backing job. Labels among them count, and not those of the pipeline."""
    if definition == CUSTOM:
        return {"jobSpec": inputs}
    return {name: value for name, value in inputs.items() if name not in ("display_name", "displayName")}


def _of_trials(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = inputs.get("trial_job_spec") or inputs.get("trialJobSpec")
    return spec if isinstance(spec, Mapping) else {}


def read_aliases(values: object, fields: MessageReader, name: str) -> tuple[str, ...]:
    """Names of a version of a model. A wrong one is a violation."""
    aliases = [] if values is None else values
    if not isinstance(aliases, list | tuple) or len(aliases) > MAX_ALIASES:
        fields.complain(name, said("must be a list of at most {most} names.", most=MAX_ALIASES))
        return ()
    for index, alias in enumerate(aliases):
        if not isinstance(alias, str) or not _ALIAS.fullmatch(alias):
            fields.complain(
                f"{name}[{index}]",
                said(
                    "must begin with a lowercase letter and have letters, digits and - only, not {value}.",
                    value=shown(alias),
                ),
            )
            return ()
    return tuple(dict.fromkeys(aliases))


def _definition(fields: MessageReader) -> str:
    name = "training_task_definition"
    definition = fields.text(name)
    if definition not in SUFFIXES and not fields.complained(name):
        fields.complain(
            name,
            said("must be {custom} or {tuning}: Trainyard has no other tasks.", custom=CUSTOM, tuning=TUNING),
        )
    return definition if definition in SUFFIXES else CUSTOM


def _refuse_unsupported(fields: MessageReader) -> None:
    fields.unsupported(
        "input_data_config",
        said(
            "managed data sets are not supported: leave it out, and tell the training code where the data is, by an "
            "argument or a variable of the container."
        ),
    )
    fields.unsupported("encryption_spec", said("customer-managed keys are not supported."))


def read_upload(document: object) -> ModelUpload:
    """The model of a `model_to_upload` that was accepted before. Raises InvalidDocument for any other."""
    complaints = Complaints()
    upload = _read_model(MessageReader(document, UPLOAD, complaints), document)
    complaints.raise_if_any()
    return upload


def _upload(pipeline: MessageReader, inputs: Mapping[str, Any]) -> ModelUpload | None:
    document = pipeline.value(UPLOAD)
    fields = pipeline.message(UPLOAD)
    if fields.empty:
        return None
    problem = _storage_problem(document)
    if problem:
        pipeline.complain(UPLOAD, problem)
        return None
    upload = _read_model(fields, document)
    if not upload.artifact_uri and not _output_prefix(inputs):
        pipeline.complain(
            f"{UPLOAD}.artifact_uri",
            said(
                "is required when {inputs} have no base_output_directory: it says where the training code leaves "
                "the model.",
                inputs=INPUTS,
            ),
        )
    return upload


def _without_output(document: Mapping[str, Any]) -> dict[str, Any]:
    set_by_us = {key for name in _OUTPUT_ONLY_OF_MODEL for key in (name, camel(name))}
    return {key: value for key, value in document.items() if key not in set_by_us}


def _storage_problem(document: object) -> str:
    """Why a document that is kept as it was sent cannot be stored. Empty if it can."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        return said("holds a number or a text that cannot be stored.")
    if "\\u0000" in text:
        return said("must not hold a NUL character.")
    return said("has more than {most} bytes.", most=MAX_UPLOAD_BYTES) if len(text) > MAX_UPLOAD_BYTES else ""


def _read_model(fields: MessageReader, document: object) -> ModelUpload:
    fields.ignore(*_KEPT_OF_MODEL, *_OUTPUT_ONLY_OF_MODEL)
    display_name = fields.text("display_name", maximum=MAX_NAME)
    if not display_name.strip() and not fields.complained("display_name"):
        fields.complain("display_name", said("is required."))
    upload = ModelUpload(
        display_name=display_name,
        artifact_uri=fields.text("artifact_uri"),
        description=fields.text("description", maximum=10_000, printable=False),
        version_description=fields.text("version_description", maximum=10_000, printable=False),
        aliases=read_aliases(fields.take("version_aliases"), fields, "version_aliases"),
        labels=read_labels(fields),
        document=_without_output(document) if isinstance(document, Mapping) else {},
    )
    fields.unsupported("encryption_spec", said("customer-managed keys are not supported."))
    fields.close()
    return upload


def _output_prefix(inputs: Mapping[str, Any]) -> object:
    directory = inputs.get("base_output_directory") or inputs.get("baseOutputDirectory")
    if not isinstance(directory, Mapping):
        return ""
    return directory.get("output_uri_prefix") or directory.get("outputUriPrefix")


def _model_id(fields: MessageReader, upload: ModelUpload | None) -> str:
    model_id = fields.text("model_id", maximum=63)
    if model_id and not _MODEL_ID.fullmatch(model_id):
        fields.complain("model_id", said("must be 1 to 63 lowercase letters, digits, _ and -."))
    elif model_id and upload is None and not fields.complained(UPLOAD):
        fields.complain("model_id", said("has a meaning only beside {upload}.", upload=UPLOAD))
    return model_id


def _parent_model(fields: MessageReader, upload: ModelUpload | None) -> str:
    """The id of the model that gets a new version."""
    given = fields.text("parent_model")
    if not given:
        return ""
    found = _PARENT.fullmatch(given)
    if not found:
        fields.complain(
            "parent_model", said("must be the name of a model: projects/P/locations/L/models/ID.")
        )
        return ""
    if upload is None and not fields.complained(UPLOAD):
        fields.complain("parent_model", said("has a meaning only beside {upload}.", upload=UPLOAD))
    return found[1]
