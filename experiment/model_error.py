"""A simulation's latency model on the steps of another run: how wrong a step's cost is, whatever was decided."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..sim.cross_validation import RegionError, region_errors
from ..sim.fit import FitError
from ..sim.latency.config import LatencyError, build_latency, parse_latency
from ..sim.latency.model import LatencyModel
from ..sim.latency.work import Work
from ..sim.measured import COLUMNS, Measured, measured_steps
from ..traces.known import known_columns
from ..traces.run import Run
from .fit import step_columns

TIMES = ("t_start", "t_end")


def model_errors(simulated: Run, other: Run) -> tuple[RegionError, ...]:
    """The model that run.json of `simulated` holds, asked for every step of `other` that ran anything; by kind of step,
    and all of them. Empty where there is no such model (or one that needs more than its numbers), or no such steps."""
    model = _model(simulated)
    if model is None or (simulated.arm, other.arm == "simulated") != ("simulated", False):
        return ()
    if not set(COLUMNS) <= {*known_columns(other), *TIMES}:
        return ()
    try:
        steps = measured_steps([step_columns(other)])
    except FitError:
        return ()
    return tuple(region_errors(steps, _predicted(model, steps)))


def _model(run: Run) -> LatencyModel | None:
    config = run.meta.get("config")
    found = config.get("latency") if isinstance(config, Mapping) else None
    try:
        return build_latency(parse_latency(found))
    except LatencyError:
        return None


def _predicted(model: LatencyModel, steps: Measured) -> NDArray[np.float64]:
    """Seconds of each step. Many are alike: each kind is asked for once."""
    asked = np.column_stack([
        steps.forwards, steps.prefill_seqs, steps.decode_seqs, steps.prefill_tokens, steps.padded_tokens,
        steps.context_tokens, steps.attended_tokens, np.maximum(steps.decode_tokens - steps.decode_seqs, 0),
    ]).astype(np.int64)
    kinds, places = np.unique(asked, axis=0, return_inverse=True)
    seconds = np.array([model.seconds(Work(*row)) for row in kinds.tolist()])
    return np.asarray(seconds[places.reshape(-1)], dtype=np.float64)
