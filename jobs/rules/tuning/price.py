"""What trials cost in GPU-hours, before they run, and what more of them are expected to bring, in words."""

from __future__ import annotations

from dataclasses import dataclass

from agents.infra.texts import join, said, said_of
from jobs.rules.time_text import time_text


@dataclass(frozen=True, slots=True)
class Price:
    """Of `trials` trials. `gpus`: of each. `usual_s`: how long such a trial takes; None where nobody knows yet.
    `most_s`: the timeout of each."""

    trials: int
    gpus: int
    usual_s: float | None
    most_s: float

    @property
    def usual_hours(self) -> float | None:
        """GPU-hours of all of them, as far as one knows. No trial runs longer than its timeout."""
        if self.usual_s is None:
            return None
        return self.trials * self.gpus * min(self.usual_s, self.most_s) / 3600

    @property
    def most_hours(self) -> float:
        return self.trials * self.gpus * self.most_s / 3600


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the model expects of the next `trials` trials: the best value then, and where it lies in 8 of 10 cases.
    `metric`: of which one."""

    trials: int
    now: float
    value: float
    low: float
    high: float
    metric: str = ""


def hours_text(hours: float) -> str:
    """`0.25`, `3.4`, `120`."""
    if hours == 0:
        return "0"
    return f"{hours:.2g}" if hours < 1 else f"{hours:.1f}" if hours < 10 else f"{hours:.0f}"


def price_text(price: Price) -> str:
    """What the trials cost: as usual where that is known, and at most."""
    trials = said_of(price.trials, "{number} trial", "{number} trials", number=price.trials)
    if not price.gpus:
        return said("{trials} without GPUs cost no GPU-hours.", trials=trials)
    gpus = said_of(price.gpus, "{number} GPU", "{number} GPUs", number=price.gpus)
    most = said(
        "{trials} with {gpus} each cost at most {hours} GPU-hours, if each runs to its timeout of {time}.",
        trials=trials,
        gpus=gpus,
        hours=hours_text(price.most_hours),
        time=time_text(price.most_s),
    )
    if price.usual_hours is None or price.usual_s is None:
        return join(" ", [most, said("How long such a trial takes is not known yet.")])
    return said(
        "{trials} with {gpus} each cost about {hours} GPU-hours, as such a trial takes {time}; at most {most}.",
        trials=trials,
        gpus=gpus,
        hours=hours_text(price.usual_hours),
        time=time_text(min(price.usual_s, price.most_s)),
        most=hours_text(price.most_hours),
    )


def outlook_text(outlook: Outlook, price: Price) -> str:
    """`10 more trials are expected to bring loss from 0.231 to about 0.225 (0.21 to 0.23), for about 12 GPU-hours.`"""
    known = {
        "trials": said_of(
            outlook.trials, "{number} more trial", "{number} more trials", number=outlook.trials
        ),
        "metric": outlook.metric,
        "now": _number(outlook.now),
        "value": _number(outlook.value),
    }
    if known["now"] == known["value"]:
        found = said("The model expects {trials} to find nothing better than {metric} {now}.", **known)
    else:
        found = said(
            "The model expects {trials} to bring {metric} from {now} to about {value}, mostly {low} to {high}.",
            **known,
            low=_number(outlook.low),
            high=_number(outlook.high),
        )
    if not price.gpus or price.usual_hours is None:
        return found
    cost = said("They cost about {hours} GPU-hours.", hours=hours_text(price.usual_hours))
    return join(" ", [found, cost])


def _number(value: float) -> str:
    return f"{value:.4g}"
