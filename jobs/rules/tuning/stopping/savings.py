"""What a rule that stops trials early would have saved, from its verdicts (`shadow.py`), in numbers and in words.

Without numpy: pages show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agents.infra.texts import said
from jobs.rules.tuning.study import Metric, Rule
from jobs.rules.tuning.trials import cost

NAMES = {Rule.MEDIAN: said("median"), Rule.CONVEX: said("convex"), Rule.DECAY_CURVE: said("decay curve")}


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a rule would have done: the share of the trials' time that it saves, and whether the best trial stays."""

    stopped: int
    saved_share: float
    keeps_best: bool


class Result(NamedTuple):
    """A trial that has a final measurement: how long it took, and its value for the objective."""

    number: int
    seconds: float
    value: float


def shadow(results: Sequence[Result], metric: Metric, would_stop: Mapping[int, float]) -> Shadow:
    """`would_stop`: after how many seconds the rule asked for the end of each of these trials."""
    if not would_stop or not results:
        return Shadow(0, 0.0, True)
    total = sum(each.seconds for each in results)
    stopped = [each for each in results if each.number in would_stop]
    saved = sum(max(0.0, each.seconds - would_stop[each.number]) for each in stopped)
    costs = [cost(metric, each.value) for each in results]
    best = min(costs)
    keeps = any(
        own == best and each.number not in would_stop for own, each in zip(costs, results, strict=True)
    )
    return Shadow(len(stopped), saved / total if total else 0.0, keeps)


def shadow_text(rule: Rule, found: Shadow, uses_gpus: bool = False) -> str:
    """`convex would have saved 23 % of the GPU-hours and kept the best trial`. The trials of a study have the same
    GPUs, so the share of their time is that of their GPU-hours."""
    name, share = NAMES[rule], f"{100 * found.saved_share:.0f} %"
    if not found.stopped:
        return said("{rule} would have stopped no trial", rule=name)
    if found.keeps_best:
        return (
            said(
                "{rule} would have saved {share} of the GPU-hours and kept the best trial",
                rule=name,
                share=share,
            )
            if uses_gpus
            else said(
                "{rule} would have saved {share} of the time and kept the best trial", rule=name, share=share
            )
        )
    return (
        said(
            "{rule} would have saved {share} of the GPU-hours and stopped the best trial",
            rule=name,
            share=share,
        )
        if uses_gpus
        else said(
            "{rule} would have saved {share} of the time and stopped the best trial", rule=name, share=share
        )
    )
