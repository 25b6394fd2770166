"""Write docs/vertex.md: what is done with each field of Vertex's messages, and which steps of Google's SDK were run.

`make behaviour` runs it. The fields come from Google's own schema. What is done with a field is observed: a job is sent
that has it, and is refused, or is read and says what is kept without effect. tests/unit/jobs/rules/spec holds the page
to that.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.image_aliases import Aliases, images_used, with_images
from jobs.rules.spec.json_fields import InvalidDocument, camel
from jobs.rules.spec.parse import parse_custom_job
from jobs.rules.spec.pipeline import CUSTOM, parse_pipeline
from jobs.rules.spec.runtime_choice import PODMAN, Offer, check_runtimes
from jobs.rules.spec.without_effect import kept_fields
from jobs.rules.tuning.parse_tuning_job import parse_tuning_job
from jobs.rules.tuning.study import kept_fields as kept_of_study

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "vertex.md"
SDK = ROOT / "tests" / "programs" / "google_sdk.py"
OWN = "google.cloud.aiplatform"
HONOURED, IGNORED, WITHOUT, REFUSED = "honoured", "ignored", "kept without effect", "refused"
CONTAINER = {"imageUri": "host", "command": ["true"]}
PACKAGE = {"executorImageUri": "host", "packageUris": ["gs://bucket/a.tar.gz"], "pythonModule": "a"}
HOSTS = Offer({"gpu-1": frozenset({PODMAN})})
# Values that are valid where any text is not.
TEXTS = {
    "image_uri": "ghcr.io/lab/train:1",
    "executor_image_uri": "ghcr.io/lab/train:1",
    "package_uris": "gs://bucket/b.tar.gz",
    "python_module": "trainer.task",
    "machine_type": "n1-standard-4",
    "output_uri_prefix": "gs://bucket/out",
    "training_task_definition": CUSTOM,
    "model_id": "digits",
    "parent_model": "digits",
    "version_aliases": "prod",
    "learning_rate_parameter_name": "n",
}
# A study in which each field may be put, and what its parameter is where the field is of another kind. No value is the
# one that a field gets.
STUDY: dict[str, Any] = {
    "displayName": "x",
    "maxTrialCount": 4,
    "parallelTrialCount": 2,
    "studySpec": {
        "metrics": [{"metricId": "loss"}],
        "parameters": [{"parameterId": "n", "integerValueSpec": {"minValue": "2", "maxValue": "8"}}],
    },
    "trialJobSpec": {"workerPoolSpecs": [{"containerSpec": CONTAINER}]},
}
VALUES: dict[str, Any] = {
    "double_value_spec": {"minValue": 0.25, "maxValue": 0.75},
    "integer_value_spec": {"minValue": "-3", "maxValue": "8"},
    "categorical_value_spec": {"values": ["b", "a"]},
    "discrete_value_spec": {"values": [0.5, 1.5]},
}
PARENTS = {
    "parent_int_values": ("integer_value_spec", [2]),
    "parent_categorical_values": ("categorical_value_spec", ["b"]),
    "parent_discrete_values": ("discrete_value_spec", [1.5]),
}
HEAD = """\
# What Trainyard does with Vertex AI's messages

Trainyard speaks Vertex AI's REST API for training: custom jobs, hyperparameter tuning jobs, training pipelines of
custom tasks, the models that these leave, operations and locations. [using.md](using.md#rest-api) says how to call it.

Each field of Google's schema is in one of these tables. *Honoured*: it has its effect. *Kept without effect*: it is
stored and shown; the answer to the submit, the form and the page of the job say that nothing follows from it.
*Ignored*: the service sets it, so a value that a client sends means nothing. *Refused*: the request gets 400 with the
path of the field. A field that is in none of Google's messages is refused too.

Images other than `host` run where a runtime for them exists, Python packages in images too; else the submit is refused.
Google's prebuilt images run as what the location uses in their place
([operating.md](operating.md#images-in-place-of-others)): another image, or `host`.

This page is made by `make behaviour`; a test holds it to what the code does with each field.
"""


def rows_of_job() -> Iterator[tuple[str, str, str]]:
    """Each field of a CustomJob: its path, what is done with it, and the words of the refusal."""
    from google.cloud.aiplatform_v1.types import CustomJob

    for path, example in leaves(CustomJob.pb().DESCRIPTOR):
        yield path, *of_job(path, example)


def rows_of_pipeline() -> Iterator[tuple[str, str, str]]:
    """Each field of a TrainingPipeline, and of the model that it is to leave. The inputs are those of a job."""
    from google.cloud.aiplatform_v1.types import Model, TrainingPipeline

    for field in TrainingPipeline.pb().DESCRIPTOR.fields:
        if field.name not in ("model_to_upload", "training_task_inputs"):
            yield field.name, *of_pipeline(field.name, example_of(field))
    for field in Model.pb().DESCRIPTOR.fields:
        path = f"model_to_upload.{field.name}"
        yield path, *of_pipeline(path, example_of(field))


def rows_of_study() -> Iterator[tuple[str, str, str]]:
    """Each field of a HyperparameterTuningJob. The spec of its trials is that of a job."""
    from google.cloud.aiplatform_v1.types import HyperparameterTuningJob

    for path, example in leaves(HyperparameterTuningJob.pb().DESCRIPTOR, whole=("trial_job_spec", "trials")):
        if path != "trial_job_spec":
            yield path, *of_study(path, example)


def leaves(message: Any, path: str = "", whole: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """The fields that hold no message of Google's own, each with an example. `whole`: messages that are one field. So
    is one that holds itself, as a parameter below a condition."""
    for field in message.fields:
        at = f"{path}{field.name}{'[]' * (field.is_repeated and not is_map(field))}"
        if is_message(field) and field.name not in whole and field.name != "parameter_spec":
            yield from leaves(field.message_type, f"{at}.", whole)
        else:
            yield at, example_of(field)


def is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def is_message(field: Any) -> bool:
    return bool(field.message_type and not is_map(field) and field.message_type.full_name.startswith(OWN))


def example_of(field: Any) -> Any:
    """A value that a client may send."""
    if is_map(field):
        return {"a": "b"}
    one: Any = TEXTS.get(field.name, "a")
    if field.enum_type is not None:
        one = field.enum_type.values[-1].name
    elif field.message_type is not None:
        known = {
            "Duration": "60s",
            "Timestamp": "2026-11-20T08:34:55Z",
            "BoolValue": True,
            "Int32Value": 1,
            "ParameterSpec": {"parameterId": "b", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
        }
        one = known.get(field.message_type.name, {"a": "b"})
    elif field.type == field.TYPE_BOOL:
        one = True
    elif field.type in (field.TYPE_INT32, field.TYPE_INT64):
        one = 1
    elif field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        one = 0.5
    return [one] if field.is_repeated else one


def of_job(path: str, example: Any) -> tuple[str, str]:
    return observed(path, *documents(path, example))


def documents(path: str, example: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job without the field, and the same with it."""
    document: dict[str, Any] = {
        "displayName": "x",
        "jobSpec": {"workerPoolSpecs": [{"containerSpec": CONTAINER}]},
    }
    document = copy.deepcopy(document)
    pool = document["jobSpec"]["workerPoolSpecs"][0]
    if "python_package_spec" in path:
        pool.clear()
        pool["pythonPackageSpec"] = copy.deepcopy(PACKAGE)
    if path.endswith("env[].value"):
        put(document, path.replace(".value", ".name"), "A")
    if path.endswith("replica_count"):
        # The first pool always has one replica.
        document["jobSpec"]["workerPoolSpecs"].insert(0, copy.deepcopy(pool))
        before = copy.deepcopy(document)
        pool["replicaCount"] = 2
        return before, document
    before = copy.deepcopy(document)
    if "accelerator_count" in path:
        put(document, path.replace("count", "type"), "NVIDIA_L4")
    if "accelerator_type" in path:
        put(document, path.replace("type", "count"), 1)
        example = "NVIDIA_H100_80GB"
    put(document, path, example)
    return before, document


def observed(path: str, before: dict[str, Any], document: dict[str, Any]) -> tuple[str, str]:
    """What the checks of a submit show, in a location whose hosts have podman."""
    try:
        job = parse_custom_job(document)
        images = images_used(job.job_spec, Aliases("default"))
        check_runtimes(with_images(job.job_spec, images), HOSTS)
    except InvalidDocument as refused:
        return REFUSED, words(path, refused)
    plain = path.replace("[]", "[0]")
    if camels(plain.removeprefix("job_spec.")) in dict(kept_fields(job.job_spec)):
        return WITHOUT, ""
    if to_document(job) == to_document(parse_custom_job(before)):
        # Sent or not, the job is the same: the service sets the field, or the example is what the job had anyway.
        return (HONOURED if found(document, path) == found(before, path) else IGNORED), ""
    return HONOURED, ""


def of_study(path: str, example: Any) -> tuple[str, str]:
    document = copy.deepcopy(STUDY)
    _prepare(document["studySpec"], path)
    before = copy.deepcopy(document)
    put(document, path, example)
    try:
        asked = parse_tuning_job(document)
    except InvalidDocument as refused:
        return REFUSED, words(path, refused)
    plain = path.replace("[]", "[0]").removeprefix("study_spec.")
    if camels(plain) in dict(kept_of_study(asked.study)):
        return WITHOUT, ""
    return (IGNORED if asked == parse_tuning_job(before) else HONOURED), ""


def _prepare(study: dict[str, Any], path: str) -> None:
    """What must be in the study so that the field may be."""
    parameter = study["parameters"][0]
    parts = [part.removesuffix("[]") for part in path.split(".")]
    if "safety_config" in parts:
        # Something must be optimized.
        study["metrics"].append({"metricId": "cost"})
    for kind in (part for part in parts if part in VALUES):
        parameter.pop("integerValueSpec")
        parameter[camel(kind)] = copy.deepcopy(VALUES[kind])
    if "conditional_parameter_specs" in parts:
        parent = next((part for part in parts if part in PARENTS), "parent_int_values")
        kind, values = PARENTS[parent]
        parameter.pop("integerValueSpec")
        parameter[camel(kind)] = copy.deepcopy(VALUES[kind])
        below = {"parameterId": "c", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
        parameter["conditionalParameterSpecs"] = [{camel(parent): {"values": values}, "parameterSpec": below}]


def of_pipeline(path: str, example: Any) -> tuple[str, str]:
    inputs = {
        "workerPoolSpecs": [{"containerSpec": CONTAINER}],
        "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/out"},
    }
    document: dict[str, Any] = {
        "displayName": "x",
        "trainingTaskDefinition": CUSTOM,
        "trainingTaskInputs": inputs,
        "modelToUpload": {"displayName": "m"},
    }
    before = copy.deepcopy(document)
    if path == "training_task_definition":
        del before["trainingTaskDefinition"]
        try:
            parse_pipeline(before)
        except InvalidDocument:
            return HONOURED, ""
    put(document, path, example)
    try:
        pipeline = parse_pipeline(document)
    except InvalidDocument as refused:
        return REFUSED, words(path, refused)
    if pipeline == parse_pipeline(before):
        return IGNORED, ""
    name = camels(path.rpartition(".")[2])
    upload = pipeline.upload.document if pipeline.upload else {}
    known = {"displayName", "description", "versionDescription", "versionAliases", "artifactUri", "labels"}
    kept = path.startswith("model_to_upload.") and name in upload and name not in known
    return (WITHOUT, "") if kept else (HONOURED, "")


def words(path: str, refused: InvalidDocument) -> str:
    """What the violation of this field says. A refusal for another reason would show nothing about it."""
    plain = path.replace("[]", "[0]")
    for each in refused.violations:
        if plain == each.field or plain.startswith((f"{each.field}.", f"{each.field}[")):
            return str(each.description)
    raise AssertionError(f"{path} was not refused for itself: {refused}")


def put(document: dict[str, Any], path: str, value: Any) -> None:
    place: Any = document
    parts = path.split(".")
    for part in parts[:-1]:
        name = camel(part.removesuffix("[]"))
        place = place.setdefault(name, [{}] if part.endswith("[]") else {})
        if isinstance(place, list):
            place = place[0]
    place[camel(parts[-1].removesuffix("[]"))] = value


def found(document: Any, path: str) -> Any:
    place = document
    for part in path.split("."):
        place = place.get(camel(part.removesuffix("[]"))) if isinstance(place, dict) else None
        if part.endswith("[]") and isinstance(place, list) and place and isinstance(place[0], dict):
            place = place[0]
    return place


def camels(path: str) -> str:
    return ".".join(camel(part) for part in path.split("."))


def steps() -> list[str]:
    return re.findall(r"^@step(?:_in_image)?\ndef (\w+)", SDK.read_text(), re.MULTILINE)


def versions() -> tuple[str, str]:
    """The versions of the SDK that the tests run: ours, and that of the environment beside it."""
    lists = ROOT / "tools" / "requirements"
    return tuple(  # type: ignore[return-value]
        re.search(r"^google-cloud-aiplatform==(\S+)", (lists / name).read_text(), re.MULTILINE)[1]  # type: ignore[index]
        for name in ("all.txt", "google-sdk-1.60.txt")
    )


def page() -> str:
    newest, old = versions()
    parts = [HEAD, "## CustomJob\n", table(rows_of_job()), "## HyperparameterTuningJob\n"]
    parts += ["`trial_job_spec` has the fields of `job_spec` above.\n", table(rows_of_study())]
    parts += ["## TrainingPipeline\n"]
    parts += ["`training_task_inputs` has the fields of `job_spec` above.\n", table(rows_of_pipeline())]
    parts += [
        "## Google's SDK\n",
        "[tests/flows/test_google_sdk.py](../tests/flows/test_google_sdk.py) runs each of these steps with both "
        "versions, unpatched, against the product on real hosts. *In a prebuilt image*: the job names one of Google's, "
        "for which an alias of the location has podman run another one.\n",
        f"| step | {newest} | {old} |\n| --- | --- | --- |\n"
        + "".join(f"| {name.replace('_', ' ')} | run | run |\n" for name in steps()),
    ]
    return "\n".join(parts)


def table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = [f"| `{path}` | {what}{': ' + why if why else ''} |\n" for path, what, why in rows]
    return "| field | |\n| --- | --- |\n" + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE}\n")
