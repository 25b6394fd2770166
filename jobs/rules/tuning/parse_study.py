"""Read a StudySpec: metrics, parameters, algorithm, and what ends the study or stops its trials early."""

from __future__ import annotations

from datetime import UTC, datetime

from agents.infra.texts import said
from jobs.rules.spec.json_fields import Complaints, MessageReader, shown
from jobs.rules.tuning.parse_parameters import read_name, read_parameters
from jobs.rules.tuning.prior import named
from jobs.rules.tuning.space import Kind, flat
from jobs.rules.tuning.study import (
    ALGORITHMS,
    DEFAULT_ALGORITHM,
    GOALS,
    GRID,
    MIN_MEASUREMENTS,
    NOISES,
    OPTUNA,
    SELECTIONS,
    EarlyStopping,
    Goal,
    Limit,
    Metric,
    Rule,
    Safety,
    Selection,
    StudySpec,
    StudyStopping,
)

MAX_METRICS = 10
MAX_PRIOR = 10
MAX_COUNT = 2**31 - 1
MAX_STEP = 2**62


def parse_study(document: object, path: str = "study_spec") -> StudySpec:
    """The study that a StudySpec document describes. Raises InvalidDocument with all violations."""
    complaints = Complaints()
    study = read_study(MessageReader(document, path, complaints))
    complaints.raise_if_any()
    return study


def read_study(fields: MessageReader) -> StudySpec:
    metrics = _metrics(fields)
    parameters = read_parameters(fields)
    algorithm = _sampler(fields, metrics) or fields.choice("algorithm", ALGORITHMS)
    if algorithm == GRID and any(each.kind is Kind.DOUBLE for each in flat(parameters)):
        fields.complain(
            "algorithm",
            said(
                "GRID_SEARCH needs parameters whose values can be counted: make each doubleValueSpec a "
                "discreteValueSpec, or choose another algorithm."
            ),
        )
    selection = fields.choice("measurement_selection_type", SELECTIONS)
    study = StudySpec(
        metrics=metrics,
        parameters=parameters,
        algorithm=algorithm,
        noise=fields.choice("observation_noise", NOISES),
        selection=Selection.BEST if selection == SELECTIONS[2] else Selection.LAST,
        stopping=_study_stopping(fields),
        early=_early_stopping(fields, {each.name for each in flat(parameters)}, metrics),
        prior=_prior(fields, algorithm),
    )
    fields.close()
    return study


def _sampler(fields: MessageReader, metrics: tuple[Metric, ...]) -> str:
    """The name of one of Optuna's samplers; empty where the document names none."""
    own = fields.message("trainyard")
    name = own.choice("algorithm", OPTUNA)
    if name and fields.value("algorithm") not in (None, 0, ALGORITHMS[0]):
        own.complain("algorithm", said("is given beside algorithm. Leave one of them out."))
    if name and any(metric.safety for metric in metrics):
        own.complain(
            "algorithm", said("{name} knows no safetyConfig: only the default search has it.", name=name)
        )
    if name == OPTUNA[3] and len(metrics) > 1:
        own.complain(
            "algorithm", said("{name} optimizes one metric. TPE and NSGA_II optimize several.", name=name)
        )
    own.close()
    if name:
        fields.ignore("algorithm")
    return name


def _metrics(fields: MessageReader) -> tuple[Metric, ...]:
    messages = fields.messages("metrics", maximum=MAX_METRICS)
    if not messages and not fields.complained("metrics"):
        fields.complain("metrics", said("is required: what the trials are measured by, at least one metric."))
    metrics = tuple(_metric(message) for message in messages)
    names = [metric.name for metric in metrics if metric.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        fields.complain("metrics", said("has two metrics {name}. Names must be unique.", name=shown(name)))
    if metrics and all(metric.safety for metric in metrics):
        fields.complain(
            "metrics", said("has safetyConfig in every metric: one without it must say what is optimized.")
        )
    return metrics


def _metric(fields: MessageReader) -> Metric:
    name = read_name(fields, "metric_id")
    if "," in name:
        fields.complain("metric_id", said("must not contain a comma: names are listed with commas."))
    goal = Goal.MINIMIZE if fields.choice("goal", GOALS) == GOALS[2] else Goal.MAXIMIZE
    safety = None
    if fields.has("safety_config"):
        config = fields.message("safety_config")
        share = config.number("desired_min_safe_trials_fraction", 0.0) or 0.0
        if not 0 <= share <= 1:
            config.complain("desired_min_safe_trials_fraction", said("must be from 0 to 1."))
        safety = Safety(config.number("safety_threshold", 0.0) or 0.0, share)
        config.close()
    fields.ignore("safety_config")
    fields.close()
    return Metric(name, goal, safety)


def _study_stopping(fields: MessageReader) -> StudyStopping | None:
    name = "study_stopping_config"
    if not fields.has(name):
        fields.ignore(name)
        return None
    config = fields.message(name)
    stopping = StudyStopping(
        stop_asap=config.switch("should_stop_asap"),
        minimum_runtime=_limit(config, "minimum_runtime_constraint"),
        maximum_runtime=_limit(config, "maximum_runtime_constraint"),
        min_trials=config.whole("min_num_trials", default=0, minimum=0, maximum=MAX_COUNT),
        max_trials=config.whole("max_num_trials", default=0, minimum=0, maximum=MAX_COUNT),
        max_trials_no_progress=config.whole(
            "max_num_trials_no_progress", default=0, minimum=0, maximum=MAX_COUNT
        ),
        max_seconds_no_progress=_positive_seconds(config, "max_duration_no_progress"),
    )
    if 0 < stopping.max_trials < stopping.min_trials:
        config.complain(
            "max_num_trials", said("must not be below minNumTrials, which is {low}.", low=stopping.min_trials)
        )
    config.close()
    return stopping


def _positive_seconds(fields: MessageReader, name: str) -> float | None:
    seconds = fields.seconds(name)
    if seconds is not None and seconds <= 0:
        fields.complain(name, said("must be more than 0s."))
        return None
    return seconds


def _limit(config: MessageReader, name: str) -> Limit | None:
    if not config.has(name):
        config.ignore(name)
        return None
    fields = config.message(name)
    if fields.has("max_duration") == fields.has("end_time"):
        config.complain(name, said("must have exactly one of maxDuration and endTime."))
    limit = Limit(_positive_seconds(fields, "max_duration"), _moment(fields, "end_time"))
    fields.close()
    return limit


def _moment(fields: MessageReader, name: str) -> datetime | None:
    value = fields.take(name)
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        moment = found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        fields.complain(
            name, said("must be a time such as 2026-11-22T10:00:00Z, not {value}.", value=shown(value))
        )
    return moment


def _prior(fields: MessageReader, algorithm: str) -> tuple[str, ...]:
    """The names of the earlier studies that this one learns from (v1beta1)."""
    config = fields.message("transfer_learning_config")
    off = config.switch("disable_transfer_learning")
    names = config.texts("prior_study_names", maximum=MAX_PRIOR, printable=True)
    for place, name in enumerate(names):
        if named(name) is None:
            config.complain(
                f"prior_study_names[{place}]",
                said("must be the number of a study, or its resource name, not {name}.", name=shown(name)),
            )
    if len({named(name) for name in names}) < len(names):
        config.complain("prior_study_names", said("names one study twice."))
    if names and off:
        config.complain(
            "disable_transfer_learning", said("is true beside priorStudyNames. Leave one of them out.")
        )
    if names and algorithm != DEFAULT_ALGORITHM:
        config.complain(
            "prior_study_names",
            said(
                "helps the default search only: leave out algorithm, or these. {name} learns from no other study.",
                name=algorithm,
            ),
        )
    config.close()
    return names


def _early_stopping(
    fields: MessageReader, parameters: set[str], metrics: tuple[Metric, ...]
) -> EarlyStopping | None:
    given = [rule for rule in Rule if fields.has(rule)]
    fields.ignore(*(rule for rule in Rule if rule not in given[:1]))
    if len(given) > 1:
        fields.complain(
            given[1], said("is given beside {other}: only one rule can stop trials.", other=given[0])
        )
    if not given:
        return None
    if sum(metric.safety is None for metric in metrics) > 1:
        fields.complain(
            given[0], said("compares trials by one metric, and this study optimizes several. Leave it out.")
        )
    spec = fields.message(given[0])
    elapsed = spec.switch("use_elapsed_duration")
    early = EarlyStopping(given[0], elapsed)
    if given[0] is Rule.CONVEX:
        early = _convex(spec, elapsed, parameters)
    spec.close()
    return early


def _convex(spec: MessageReader, elapsed: bool, parameters: set[str]) -> EarlyStopping:
    rate = spec.text("learning_rate_parameter_name")
    if rate and rate not in parameters:
        spec.complain(
            "learning_rate_parameter_name", said("{name} is not a parameter of the study.", name=shown(rate))
        )
    early = EarlyStopping(
        Rule.CONVEX,
        elapsed,
        max_steps=spec.whole("max_step_count", default=0, minimum=0, maximum=MAX_STEP),
        min_steps=spec.whole("min_step_count", default=0, minimum=0, maximum=MAX_STEP),
        # Zero is what is left out on the wire: the default.
        min_measurements=spec.whole("min_measurement_count", default=0, minimum=0, maximum=MAX_COUNT)
        or MIN_MEASUREMENTS,
        learning_rate_parameter=rate,
        update_all_stopped=spec.switch("update_all_stopped_trials"),
    )
    if 0 < early.max_steps < early.min_steps:
        spec.complain(
            "min_step_count", said("must not be above maxStepCount, which is {high}.", high=early.max_steps)
        )
    return early
