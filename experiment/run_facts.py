"""The facts that statements read, from the runs of one cell."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..traces.decisions import Split, first_split
from ..traces.quantities import quantity, scalar
from ..traces.run import Run
from ..traces.spread import NAN
from .statement_words import SHORT, TIME_REDUCERS

MOST_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class RunFacts:
    """`runs`: variant -> its run. See `statements.Facts`."""

    runs: Mapping[str, Run]

    def value(self, function: str, column: str | None, variant: str) -> float:
        """NaN where there is nothing to measure, such as the TTFT of no requests."""
        run = self.runs[variant]
        if column is None:
            return scalar(run, SHORT.get(function, function))
        values = quantity(run, column)
        return over_time(values, run.step_seconds()) if function in TIME_REDUCERS else reduced(function, values)

    def difference(self, first: str, second: str) -> str | None:
        """None where all scheduling columns are equal at every step, else where they part."""
        split = first_split(self.runs[first], self.runs[second])
        return None if split is None else _told(split)


def reduced(function: str, values: NDArray[np.float64]) -> float:
    """One of `REDUCERS` over the values that are not NaN; NaN of none. Percentiles interpolate linearly."""
    values = values[~np.isnan(values)]
    if not len(values):
        return NAN
    if function.startswith("p"):
        return float(np.quantile(values, int(function[1:]) / 100))
    return float(getattr(np, function)(values))


def over_time(values: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
    """The mean of values that each lasted `seconds`, where there are any; the plain mean where none lasted."""
    known = ~np.isnan(values)
    total = float(seconds[known].sum())
    return float(values[known] @ seconds[known]) / total if total > 0 else reduced("mean", values)


def _told(split: Split) -> str:
    pairs = [f"{name} {a} and {b}" for name, (a, b) in split.columns.items() if a is not None and b is not None]
    rest = f" and {len(pairs) - MOST_COLUMNS} more" if len(pairs) > MOST_COLUMNS else ""
    what = ", ".join(pairs[:MOST_COLUMNS]) + rest if pairs else "one of them has ended"
    return f"they part at step {split.step}: {what}"
