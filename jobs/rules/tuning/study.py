"""What a user requests, as frozen values: Vertex's HyperparameterTuningJob and its StudySpec, and their canonical JSON.

`parse_tuning_job.py` and `parse_study.py` make these from what clients send. `study_document` writes the canonical
form, and reading it gives the same study again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.json_fields import camel, duration
from jobs.rules.spec.secret_variables import AskedSecret
from jobs.rules.spec.tasks import given
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale, size

GOALS = {0: "GOAL_TYPE_UNSPECIFIED", 1: "MAXIMIZE", 2: "MINIMIZE"}
ALGORITHMS = {0: "ALGORITHM_UNSPECIFIED", 2: "GRID_SEARCH", 3: "RANDOM_SEARCH"}
# Optuna's samplers, which Vertex does not have: `trainyard.algorithm` of the document names them.
OPTUNA = {0: "", 1: "TPE", 2: "NSGA_II", 3: "CMA_ES"}
NOISES = {0: "OBSERVATION_NOISE_UNSPECIFIED", 1: "LOW", 2: "HIGH"}
SELECTIONS = {
    0: "MEASUREMENT_SELECTION_TYPE_UNSPECIFIED",
    1: "LAST_MEASUREMENT",
    2: "BEST_MEASUREMENT",
}
SCALES = {0: "SCALE_TYPE_UNSPECIFIED", **dict(enumerate((str(each) for each in Scale), start=1))}

# The default search: the Gaussian process of `bayesian.py`.
DEFAULT_ALGORITHM = ALGORITHMS[0]
GRID, RANDOM = ALGORITHMS[2], ALGORITHMS[3]
NOISY = NOISES[2]
# So many trials are random before the model of the default search is asked.
FIRST_TRIALS = 5
# A trial is stopped early only when it has so many measurements, and when more trials than this have completed.
MIN_MEASUREMENTS = 5
# Of suggestions: with it and the rows, each comes out the same.
SEED_BITS = 63
# The label by which the jobs of a study are found in the list of jobs.
LABEL = "trainyard-tuning-job"


class Goal(StrEnum):
    MAXIMIZE = "MAXIMIZE"
    MINIMIZE = "MINIMIZE"


class Selection(StrEnum):
    """Which measurement of a trial is its final one."""

    LAST = "LAST_MEASUREMENT"
    BEST = "BEST_MEASUREMENT"


class Rule(StrEnum):
    """Which rule stops trials early. The value is the field of the StudySpec."""

    MEDIAN = "median_automated_stopping_spec"
    DECAY_CURVE = "decay_curve_stopping_spec"
    CONVEX = "convex_automated_stopping_spec"


@dataclass(frozen=True, slots=True)
class Safety:
    """A metric that must not be worse than `threshold`. It is watched, not optimized."""

    threshold: float = 0.0
    desired_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    goal: Goal = Goal.MAXIMIZE
    safety: Safety | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound in time: so long after the start of the first trial, or at a moment.

    Google's documents count a duration from the creation of the study. There nothing waits for hosts; here a study may
    wait for days, and a bound that is spent in the queue would end it before its first trial. The time in the queue is
    no runtime."""

    seconds: float | None = None
    moment: datetime | None = None


@dataclass(frozen=True, slots=True)
class StudyStopping:
    """When the study itself ends (`studyStoppingConfig`). Zero or None: not asked for."""

    stop_asap: bool = False
    minimum_runtime: Limit | None = None
    maximum_runtime: Limit | None = None
    min_trials: int = 0
    max_trials: int = 0
    max_trials_no_progress: int = 0
    max_seconds_no_progress: float | None = None


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """When single trials are stopped. The fields below `use_elapsed` belong to the convex rule alone."""

    rule: Rule
    use_elapsed: bool = False
    max_steps: int = 0
    min_steps: int = 0
    min_measurements: int = MIN_MEASUREMENTS
    learning_rate_parameter: str = ""
    update_all_stopped: bool = False


@dataclass(frozen=True, slots=True)
class StudySpec:
    metrics: tuple[Metric, ...]
    parameters: tuple[Parameter, ...]
    algorithm: str = DEFAULT_ALGORITHM
    noise: str = NOISES[0]
    selection: Selection = Selection.LAST
    stopping: StudyStopping | None = None
    early: EarlyStopping | None = None
    # The names of earlier studies that it learns from (`prior.py`).
    prior: tuple[str, ...] = ()

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """The metrics that are optimized."""
        return tuple(metric for metric in self.metrics if metric.safety is None)

    @property
    def points(self) -> int | None:
        """How many points are tried. None: without end. Noisy measurements are worth a second trial of the same point,
        but a grid has each point once."""
        return None if self.noise == NOISY and self.algorithm != GRID else size(self.parameters)


@dataclass(frozen=True, slots=True)
class TuningJob:
    """`max_failed_trials`: 0 leaves it to Trainyard (`failed_trials.py`). `seed`: None leaves it to chance."""

    display_name: str
    study: StudySpec
    trial_spec: CustomJobSpec
    max_trials: int
    parallel_trials: int
    max_failed_trials: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    asked_secrets: tuple[AskedSecret, ...] = field(default=(), compare=False, repr=False)


def kept_fields(study: StudySpec) -> tuple[tuple[str, str], ...]:
    """The fields that are kept without effect, by their names in the document, with their values: a measurement that
    is predicted is none, and how many trials should be safe is left to the model (`bayesian.py`)."""
    found = [
        (f"metrics[{place}].safetyConfig.desiredMinSafeTrialsFraction", str(metric.safety.desired_share))
        for place, metric in enumerate(study.metrics)
        if metric.safety is not None and metric.safety.desired_share
    ]
    early = study.early
    if early is not None and early.learning_rate_parameter:
        found.append((f"{camel(early.rule)}.learningRateParameterName", early.learning_rate_parameter))
    if early is not None and early.update_all_stopped:
        found.append((f"{camel(early.rule)}.updateAllStoppedTrials", "true"))
    return tuple(found)


def study_document(study: StudySpec) -> dict[str, object]:
    """The canonical JSON of a StudySpec."""
    early = {} if study.early is None else {camel(study.early.rule): _early_document(study.early)}
    return {
        **given(
            metrics=[_metric_document(each) for each in study.metrics],
            parameters=[_parameter_document(each) for each in study.parameters],
            algorithm="" if study.algorithm in (ALGORITHMS[0], *OPTUNA.values()) else study.algorithm,
            observationNoise="" if study.noise == NOISES[0] else study.noise,
            measurementSelectionType="" if study.selection is Selection.LAST else str(study.selection),
        ),
        **({} if study.stopping is None else {"studyStoppingConfig": _stopping_document(study.stopping)}),
        **early,
        **({"trainyard": {"algorithm": study.algorithm}} if study.algorithm in OPTUNA.values() else {}),
        **({"transferLearningConfig": {"priorStudyNames": list(study.prior)}} if study.prior else {}),
    }


def _metric_document(metric: Metric) -> dict[str, object]:
    document = given(metricId=metric.name, goal=str(metric.goal))
    if metric.safety is not None:
        document["safetyConfig"] = given(
            safetyThreshold=metric.safety.threshold, desiredMinSafeTrialsFraction=metric.safety.desired_share
        )
    return document


def _parameter_document(parameter: Parameter) -> dict[str, object]:
    document: dict[str, object] = {"parameterId": parameter.name}
    document[f"{parameter.kind.lower()}ValueSpec"] = _values_document(parameter)
    if parameter.scale is not Scale.LINEAR:
        document["scaleType"] = str(parameter.scale)
    if parameter.conditions:
        document["conditionalParameterSpecs"] = [
            _condition_document(parameter.kind, each) for each in parameter.conditions
        ]
    return document


def _values_document(parameter: Parameter) -> dict[str, object]:
    integer = parameter.kind is Kind.INTEGER
    document: dict[str, object]
    if parameter.values:
        document = {"values": list(parameter.values)}
    elif integer:
        document = {"minValue": str(int(parameter.low)), "maxValue": str(int(parameter.high))}
    else:
        document = {"minValue": parameter.low, "maxValue": parameter.high}
    if parameter.default is not None:
        document["defaultValue"] = str(parameter.default) if integer else parameter.default
    return document


PARENT_VALUES = {
    Kind.DISCRETE: "parent_discrete_values",
    Kind.INTEGER: "parent_int_values",
    Kind.CATEGORICAL: "parent_categorical_values",
}


def _condition_document(parent: Kind, condition: Condition) -> dict[str, object]:
    values = [str(each) if parent is Kind.INTEGER else each for each in condition.values]
    return {
        camel(PARENT_VALUES[parent]): {"values": values},
        "parameterSpec": _parameter_document(condition.parameter),
    }


def _limit_document(limit: Limit | None) -> dict[str, object]:
    if limit is None:
        return {}
    if limit.moment is not None:
        return {"endTime": limit.moment.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    return {"maxDuration": duration(limit.seconds or 0.0)}


def _stopping_document(stopping: StudyStopping) -> dict[str, object]:
    patience = stopping.max_seconds_no_progress
    return given(
        shouldStopAsap=stopping.stop_asap,
        minimumRuntimeConstraint=_limit_document(stopping.minimum_runtime),
        maximumRuntimeConstraint=_limit_document(stopping.maximum_runtime),
        minNumTrials=stopping.min_trials,
        maxNumTrials=stopping.max_trials,
        maxNumTrialsNoProgress=stopping.max_trials_no_progress,
        maxDurationNoProgress="" if patience is None else duration(patience),
    )


def _early_document(early: EarlyStopping) -> dict[str, object]:
    if early.rule is not Rule.CONVEX:
        return given(useElapsedDuration=early.use_elapsed)
    return given(
        maxStepCount=str(early.max_steps) if early.max_steps else "",
        minStepCount=str(early.min_steps) if early.min_steps else "",
        minMeasurementCount=str(early.min_measurements),
        learningRateParameterName=early.learning_rate_parameter,
        useElapsedDuration=early.use_elapsed,
        updateAllStoppedTrials=early.update_all_stopped,
    )
