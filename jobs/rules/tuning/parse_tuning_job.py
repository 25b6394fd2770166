"""Parse a HyperparameterTuningJob: the study, how many trials it may have, and the CustomJobSpec that each runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agents.infra.texts import said
from jobs.rules.spec.custom_job import MAX_LABELS, CustomJob
from jobs.rules.spec.json_fields import Complaints, InvalidDocument, MessageReader
from jobs.rules.spec.machine_types import NO_TYPES, Types
from jobs.rules.spec.parse import parse_custom_job, read_labels
from jobs.rules.tuning.parse_study import read_study
from jobs.rules.tuning.study import LABEL, SEED_BITS, StudySpec, TuningJob

MAX_TRIALS = 10_000
MAX_PARALLEL = 1_000
MAX_NAME = 128
BY_CHANCE = -1
TRIAL_JOB_SPEC = "trial_job_spec"
_OUTPUT_ONLY = (
    "name",
    "trials",
    "state",
    "create_time",
    "start_time",
    "end_time",
    "update_time",
    "error",
    "satisfies_pzs",
    "satisfies_pzi",
)


def parse_tuning_job(document: object, types: Types = NO_TYPES, gpus_here: Collection[str] = ()) -> TuningJob:
    """The job that a HyperparameterTuningJob document describes. Raises `InvalidDocument` with all violations.

    `types`, `gpus_here`: as for `parse_custom_job`.
    """
    complaints = Complaints()
    fields = MessageReader(document, "", complaints)
    fields.ignore(*_OUTPUT_ONLY)
    display_name = fields.text("display_name", maximum=MAX_NAME)
    if not display_name.strip() and not fields.complained("display_name"):
        fields.complain("display_name", said("is required."))
    labels = _labels(fields)
    fields.unsupported("encryption_spec", said("customer-managed keys are not supported."))
    if not fields.has("study_spec"):
        fields.complain("study_spec", said("is required: metrics and parameters."))
    own = fields.message("trainyard")
    own.ignore("reason", "drawn_by_seed")
    study = _study(fields, complaints, own.take("algorithm"))
    seed = own.whole("seed", default=BY_CHANCE, minimum=0, maximum=2**SEED_BITS - 1)
    trial = _trial_job(fields, complaints, types, gpus_here)
    most, parallel, failed = _counts(fields)
    own.close()
    fields.close()
    complaints.raise_if_any()
    if study is None or trial is None:
        raise AssertionError("a field that is missing is a violation")
    return TuningJob(
        display_name=display_name,
        study=study,
        trial_spec=trial.job_spec,
        max_trials=most,
        parallel_trials=parallel,
        max_failed_trials=failed,
        labels=labels,
        seed=None if seed == BY_CHANCE else seed,
        asked_secrets=trial.asked_secrets,
    )


def _study(fields: MessageReader, complaints: Complaints, sampler: object) -> StudySpec | None:
    """`sampler`: that of `trainyard.algorithm`, which may stand beside the study or in it."""
    if not fields.has("study_spec"):
        return None
    spec = fields.value("study_spec")
    fields.ignore("study_spec")
    if sampler is not None and isinstance(spec, Mapping):
        spec = {**spec, "trainyard": {"algorithm": sampler}}
    return read_study(MessageReader(spec, "study_spec", complaints))


def _labels(fields: MessageReader) -> dict[str, str]:
    """Its labels are those of its trials too, and each trial has one more."""
    labels = read_labels(fields)
    if LABEL in labels:
        fields.complain(
            f"labels.{LABEL}", said("is a label that Trainyard gives to each trial. Leave it out.")
        )
    if len(labels) >= MAX_LABELS:
        fields.complain(
            "labels",
            said(
                "has {number} entries; at most {most} are possible: each trial gets one more.",
                number=len(labels),
                most=MAX_LABELS - 1,
            ),
        )
    return labels


def _counts(fields: MessageReader) -> tuple[int, int, int]:
    counts = []
    for name, why, most in (
        ("max_trial_count", said("is required: how many trials the study may have."), MAX_TRIALS),
        ("parallel_trial_count", said("is required: how many trials may run at once."), MAX_PARALLEL),
    ):
        # The client leaves a zero out: both say that the number is missing.
        if not fields.has(name) or fields.value(name) in (0, "0"):
            fields.complain(name, why)
            fields.ignore(name)
        counts.append(fields.whole(name, default=1, minimum=1, maximum=most))
    trials, parallel = counts
    failed = fields.whole("max_failed_trial_count", default=0, minimum=0, maximum=MAX_TRIALS)
    if failed > trials and not fields.complained("max_trial_count"):
        fields.complain(
            "max_failed_trial_count",
            said("must not be above maxTrialCount, which is {most}: it would never be reached.", most=trials),
        )
    return trials, parallel, failed


def _trial_job(
    fields: MessageReader, complaints: Complaints, types: Types, gpus_here: Collection[str]
) -> CustomJob | None:
    """The spec of the trials is that of a custom job, and is read as one."""
    spec = fields.value(TRIAL_JOB_SPEC)
    fields.ignore(TRIAL_JOB_SPEC)
    if spec is None:
        fields.complain(TRIAL_JOB_SPEC, said("is required: what each trial runs, as in a CustomJob."))
        return None
    try:
        return parse_custom_job({"displayName": "trial", "jobSpec": spec}, types, gpus_here)
    except InvalidDocument as refused:
        for each in refused.violations:
            complaints.add(each.field.replace("job_spec", TRIAL_JOB_SPEC, 1), each.description)
        return None
