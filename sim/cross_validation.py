"""How well a fit tells steps that it has not seen, by kind of step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .fit import FitError
from .measured import Floats, Measured

FOLDS = 5
STRETCHES = 4
"""Contiguous stretches of steps in each fold: neighbours in time share their noise and must not tell of each other."""

Fitter = Callable[[Measured], Callable[[Measured], Floats]]
"""From steps to a function that gives the seconds of others."""


@dataclass(frozen=True, slots=True)
class RegionError:
    """Relative errors over `steps` steps of a kind, predicted against measured: median and 90th percentile of their
    size, and `bias`, that of the seconds summed."""

    name: str
    steps: int
    median: float
    p90: float
    bias: float


def cross_validate(measured: Measured, fitter: Fitter, groups: NDArray[np.int64] | None = None) -> list[RegionError]:
    """Errors by region, each step predicted by a fit on the other folds.

    `groups`: a number for each step; those of one number are held out together (left out: stretches of the table).
    Raises FitError where what is left is too little.
    """
    fold = (_stretches(len(measured)) if groups is None else groups) % FOLDS
    predicted = np.empty(len(measured))
    for number in np.unique(fold):
        held_out = fold == number
        if held_out.all():
            raise FitError(f"{len(measured)} steps are too few to hold some of them out")
        predicted[held_out] = fitter(measured.take(~held_out))(measured.take(held_out))
    return region_errors(measured, predicted)


def region_errors(measured: Measured, predicted: Floats) -> list[RegionError]:
    """One for each region that has a step, then one for all steps."""
    return [_error(name, measured.seconds[chosen], predicted[chosen]) for name, chosen in regions(measured)]


def regions(measured: Measured) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Decode steps by their rows (1, 2, 3-4, 5-8, ...), prefill steps, mixed ones; all."""
    rows, prefills = measured.decode_seqs, measured.prefills
    low, high = 1, 1
    while low <= rows.max():
        chosen = ~prefills & (rows >= low) & (rows <= high)
        if chosen.any():
            yield f"decode, {low} row{'s' if high > 1 else ''}" if low == high else f"decode, {low}-{high} rows", chosen
        low, high = high + 1, 2 * high
    for name, chosen in (("prefill", prefills & (rows == 0)), ("mixed", prefills & (rows > 0))):
        if chosen.any():
            yield name, chosen
    yield "all", np.ones(len(measured), dtype=bool)


def _error(name: str, seconds: Floats, predicted: Floats) -> RegionError:
    sizes = np.abs(predicted / seconds - 1.0)
    bias = float(predicted.sum() / seconds.sum() - 1.0)
    return RegionError(name, len(seconds), float(np.median(sizes)), float(np.quantile(sizes, 0.9)), bias)


def _stretches(steps: int) -> NDArray[np.int64]:
    count = min(FOLDS * STRETCHES, steps)
    return np.asarray(np.arange(steps) * count // max(steps, 1), dtype=np.int64)
