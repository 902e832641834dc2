"""A gauge of any run over time: from its steps, or from the samples of an imported log."""

import numpy as np

from .curve import Curve
from .known import KEY
from .run import Run

SAMPLED = {"running": ("running", 1.0), "waiting": ("waiting_all", 1.0), "kv_used": ("kv_usage", 100.0)}
"""Which sample column tells of a step column, and what it is multiplied with: KV use is a share there."""


def is_sampled(run: Run) -> bool:
    """It has points in time instead of steps."""
    return not run.steps.num_rows and run.samples.num_rows > 0


def curve_of(run: Run, name: str, bridged: float = 0.0) -> Curve:
    """The curve of a step column; of a run without steps that of its samples, `kv_used` in percent of the pool. Empty
    where the run does not tell. `bridged`: see `Curve.of`."""
    known = run.meta.get(KEY)
    if is_sampled(run):
        return _sampled(run, *SAMPLED[name]) if name in SAMPLED else _nothing()
    return _nothing() if known is not None and name not in known else Curve.of(run, name, bridged)


def _sampled(run: Run, column: str, factor: float) -> Curve:
    times, values = run.sample_column("time"), run.sample_column(column)
    told = ~np.isnan(times) & ~np.isnan(values)
    order = np.argsort(times[told], kind="stable")
    return Curve(times[told][order], factor * values[told][order])


def _nothing() -> Curve:
    return Curve(np.zeros(0), np.zeros(0))
