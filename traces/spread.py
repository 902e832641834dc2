"""How a set of numbers is spread, and how a gauge ran."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of `count` values: mean, percentiles (linear between the two nearest values) and largest; NaN of none."""

    count: int
    mean: float = NAN
    p50: float = NAN
    p90: float = NAN
    p99: float = NAN
    max: float = NAN

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Spread":
        if not len(values):
            return cls(0)
        p50, p90, p99 = (float(p) for p in np.quantile(values, (0.5, 0.9, 0.99)))
        return cls(len(values), float(values.mean()), p50, p90, p99, float(values.max()))


@dataclass(frozen=True, slots=True)
class Gauge:
    """`mean` counts every step once, as an engine's own step log would; `time_mean` weights a step by its duration
    (idle time between steps does not count). NaN of no steps."""

    mean: float = NAN
    time_mean: float = NAN
    max: float = NAN

    @classmethod
    def of(cls, values: NDArray[np.int64], seconds: NDArray[np.float64]) -> "Gauge":
        if not len(values):
            return cls()
        mean, total = float(values.mean()), float(seconds.sum())
        return cls(mean, float(values @ seconds) / total if total > 0 else mean, float(values.max()))


def share(part: float, whole: float) -> float:
    """NaN of nothing."""
    return part / whole if whole else NAN
