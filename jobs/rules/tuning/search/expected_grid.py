"""What the model expects over two parameters, as plain numbers: without numpy, for those who only draw it."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.rules.tuning.space import Value


@dataclass(frozen=True, slots=True)
class ExpectedGrid:
    """`values`: the metric for each value of `up`, and in it for each value of `across`."""

    across: tuple[Value, ...]
    up: tuple[Value, ...]
    values: tuple[tuple[float, ...], ...]
