"""How the parameters of a trial reach its program: as arguments behind those that the document gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.rules.metrics.log_lines import ASKED as LOG_METRICS
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.tuning.space import Kind, Parameter, Point, Value, flat


def spec_of_trial(spec: CustomJobSpec, number: int, metrics: Sequence[str]) -> CustomJobSpec:
    """The spec of one trial: its output directory is below that of the study, and its metrics are looked for in what
    it prints."""
    base = spec.base_output_directory
    pools = tuple(pool and _with_metrics(pool, ",".join(metrics)) for pool in spec.pools)
    return replace(spec, pools=pools, base_output_directory=f"{base.rstrip('/')}/{number}" if base else "")


def with_arguments(spec: CustomJobSpec, point: Point, parameters: tuple[Parameter, ...]) -> CustomJobSpec:
    """The spec with `--name=value` for each active parameter, in every pool but that of reducers, which have a program
    of their own. A negative value needs the = too."""
    args, reducers = arguments(point, parameters), reduction.reducers(spec)
    pools = (pool if pool is reducers else pool and _with(pool, args) for pool in spec.pools)
    return replace(spec, pools=tuple(pools))


def arguments(point: Mapping[str, Value], parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    kinds = {parameter.name: parameter.kind for parameter in flat(parameters)}
    return tuple(f"--{name}={text_of(value, kinds[name])}" for name, value in point.items())


def text_of(value: Value, kind: Kind) -> str:
    """The shortest text that is read as the same number. DISCRETE 16.0 is 16: programs read it with `type=int`."""
    if kind is Kind.DISCRETE and isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else repr(value)


def _with_metrics(pool: Pool, names: str) -> Pool:
    if LOG_METRICS in dict(pool.task.env):
        return pool
    return replace(pool, task=replace(pool.task, env=(*pool.task.env, (LOG_METRICS, names))))


def _with(pool: Pool, args: tuple[str, ...]) -> Pool:
    return replace(pool, task=replace(pool.task, args=(*pool.task.args, *args)))
