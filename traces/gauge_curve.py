"""A gauge of any run over time as a page draws it: from its steps, or the points of an imported log."""

from dataclasses import dataclass

import numpy as np

from .curve import SAMPLED, Curve
from .known import known_columns
from .run import Run

PERCENT = "kv_used"
"""Of this gauge a log's samples tell the share of the pool in use."""


@dataclass(frozen=True, slots=True, eq=False)
class GaugeCurve:
    """`sampled`: the times are those of a log's samples, and nothing is known between them; then KV use is in percent
    of the pool. Empty where the run does not tell the gauge."""

    curve: Curve
    sampled: bool = False

    @classmethod
    def of(cls, run: Run, name: str, bridged: float = 0.0) -> "GaugeCurve":
        """`name`: a column of the step table. `bridged`: see `Curve.of`."""
        if name in known_columns(run):
            return cls(Curve.of(run, name, bridged))
        curve = _points(run, name)
        return cls(curve, len(curve.times) > 0)


def _points(run: Run, name: str) -> Curve:
    if name in SAMPLED:
        return Curve(*Curve.points(run, name))
    if name != PERCENT:
        return Curve(np.zeros(0), np.zeros(0))
    times, values = run.sample_column("time"), 100 * run.sample_column("kv_usage")
    told = ~(np.isnan(times) | np.isnan(values))
    order = np.argsort(times[told], kind="stable")
    return Curve(times[told][order], values[told][order])
