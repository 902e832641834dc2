"""The latency models that can be fitted to single steps, by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .cross_validation import Fitter, RegionError, cross_validate
from .fit import CONTEXT, FEATURES, AffineFit, FitError, fit_affine
from .measured import Floats, Measured, measured_steps
from .table_fit import TableFit, fit_table, predict

Kind = Literal["affine", "table"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Predict = Callable[[Measured], Floats]


def fit_kind(
    kind: Kind, tables: Sequence[Mapping[str, Any]], groups: NDArray[np.int64] | None = None,
) -> tuple[AffineFit | TableFit, tuple[RegionError, ...]]:
    """The model fitted on all steps that ran anything, and its cross-validated errors: none where the steps are too few
    to hold any out. `groups`: see `cross_validate`. Raises FitError."""
    measured = measured_steps(tables)
    fitter: Fitter = _affine if kind == "affine" else _table
    fit = _affine_fit(measured) if kind == "affine" else fit_table(measured)
    try:
        return fit, tuple(cross_validate(measured, fitter, groups))
    except FitError:
        return fit, ()


def _affine(measured: Measured) -> Predict:
    fit = _affine_fit(measured)
    return lambda steps: fit.predict(_features(steps))


def _affine_fit(measured: Measured) -> AffineFit:
    return fit_affine(_features(measured), measured.seconds, (*FEATURES, CONTEXT))


def _table(measured: Measured) -> Predict:
    config = fit_table(measured).config
    return lambda steps: predict(config, steps)


def _features(steps: Measured) -> Floats:
    """As `features_of_steps`, with context."""
    columns = (~steps.prefills, steps.prefills, steps.padded_tokens, steps.rows, steps.context_tokens)
    return np.column_stack(columns).astype(np.float64)
