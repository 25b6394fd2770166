"""Earlier studies that a study learns from: how they are named, whether they fit, and what is taken from them.

Their trials are further points for the model, each study standardised on its own, and never trials of the new study:
they count in no number, and no best trial is one of them. Trials without a result are left out: a mistake that made
them fail may be mended by now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.infra.texts import said
from jobs.rules.list_text import list_text
from jobs.rules.tuning.space import flat, has_point
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import Trial, by_number, cost

# The field of the document, as refusals name it.
PRIOR = "study_spec.transfer_learning_config.prior_study_names"
# So many trials of one earlier study are taken: the model looks at fewer.
MOST_TRIALS = 1_000
_NAME = re.compile(
    r"(?:projects/([^/]{1,63})/locations/[^/]{1,63}/(?:hyperparameterTuningJobs|studies)/)?([0-9]{1,19})",
    re.ASCII,
)


def named(name: str) -> tuple[str, int] | None:
    """The project, empty where the name is a number alone, and the number. None: it is no name of a study."""
    found = _NAME.fullmatch(name)
    return (found[1] or "", int(found[2])) if found else None


def mismatch(study: StudySpec, earlier: StudySpec) -> str:
    """Why the study can learn nothing from this one; empty where it can."""
    own, theirs = ({each.name for each in flat(one.parameters)} for one in (study, earlier))
    if own != theirs:
        return said(
            "has other parameters: {names}. A study learns from those whose parameters have the same ids.",
            names=list_text(sorted(own ^ theirs), 8),
        )
    missing = {each.name for each in study.objectives} - {each.name for each in earlier.metrics}
    if missing:
        return said("does not measure {names}.", names=list_text(sorted(missing), 8))
    return ""


def taken(study: StudySpec, trials: Sequence[Trial], most: int = MOST_TRIALS) -> list[Trial]:
    """The trials with a result that lie in the space of the study. Of too many the best half, and the rest evenly."""
    found = [each for each in trials if each.measured and has_point(study.parameters, each.parameters)]
    if len(found) <= most:
        return by_number(found)
    metric = study.objectives[0]
    ranked = sorted(found, key=lambda each: (cost(metric, each.value(metric.name)), each.number))
    best, rest = ranked[: most // 2], ranked[most // 2 :]
    left = most - len(best)
    return by_number([*best, *(rest[index * len(rest) // left] for index in range(left))])
