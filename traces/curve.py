"""A gauge over time, as a step function."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .known import known_columns
from .run import Run

Numbers = NDArray[np.float64]

AFTER_STEP = {"running": "running_end", "waiting": "waiting_end", "kv_used": "kv_used_end"}
"""Which column holds a gauge's value while the engine is idle after a step; any other column is 0 then."""

SAMPLED = {"running": "running", "waiting": "waiting_all"}
"""A gauge -> the column of the samples that has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """`values[i]` holds from `times[i]` (seconds) to the next; 0 before the first, the last value after the last."""

    times: Numbers
    values: Numbers

    @classmethod
    def of(cls, run: Run, name: str, bridged: float = 0.0) -> "Curve":
        """A column of the step table: a step's value from its start to its end, and in the gap to the next step
        what the engine's gauge said after commit; over gaps of up to `bridged` seconds the value holds. A gauge that
        only the samples of a log tell holds half-way to the samples beside it."""
        if is_sampled(run, name):
            return cls._of_samples(run, name)
        starts, ends, values = run.column("t_start"), run.column("t_end"), run.column(name).astype(np.float64)
        if not len(starts):
            return cls(np.zeros(0), np.zeros(0))
        after = run.column(AFTER_STEP[name]).astype(np.float64) if name in AFTER_STEP else np.zeros(len(values))
        gaps = np.append(starts[1:] > ends[:-1] + bridged, True)  # a gap follows the last step, too
        places = np.arange(1, len(starts) + 1)[gaps]
        return cls(np.insert(starts, places, ends[gaps]), np.insert(values, places, after[gaps]))

    @staticmethod
    def points(run: Run, name: str) -> tuple[Numbers, Numbers]:
        """Times, ascending, and values of the samples that tell a gauge."""
        times, values = run.sample_column("time"), run.sample_column(SAMPLED[name])
        told = ~(np.isnan(times) | np.isnan(values))
        order = np.argsort(times[told], kind="stable")
        return times[told][order], values[told][order]

    @classmethod
    def _of_samples(cls, run: Run, name: str) -> "Curve":
        times, values = cls.points(run, name)
        if len(times) < 2:
            return cls(times, values)
        between = (times[1:] + times[:-1]) / 2
        return cls(np.concatenate([times[:1], between, times[-1:]]), np.append(values, values[-1]))

    def moved(self, seconds: float) -> "Curve":
        """The same, that much later."""
        return self if not seconds else Curve(self.times + seconds, self.values)

    @property
    def start(self) -> float:
        return float(self.times[0]) if len(self.times) else 0.0

    @property
    def end(self) -> float:
        return float(self.times[-1]) if len(self.times) else 0.0

    def at(self, when: Numbers) -> Numbers:
        """The values at the times `when`, seconds."""
        if not len(self.times):
            return np.zeros(len(when))
        places = np.searchsorted(self.times, when, side="right") - 1
        return np.where(places < 0, 0.0, self.values[places])

    def integral(self, when: Numbers) -> Numbers:
        """The integral from the curve's start to each of `when` (ascending, seconds)."""
        if not len(self.times):
            return np.zeros(len(when))
        areas = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times))])
        places = np.maximum(np.searchsorted(self.times, when, side="right") - 1, 0)
        beyond = np.maximum(when - self.times[places], 0.0)
        return np.asarray(areas[places] + self.values[places] * beyond, dtype=np.float64)

    def envelope(self, edges: Numbers) -> "Envelope":
        """Lowest, highest and time-weighted mean value between each two of the ascending `edges`, seconds."""
        low = np.maximum(np.searchsorted(self.times, edges[:-1], side="right") - 1, 0)
        high = np.maximum(np.searchsorted(self.times, edges[1:], side="left"), low + 1)
        means = np.diff(self.integral(edges)) / np.diff(edges)
        return Envelope(edges, self._reduce(np.minimum, low, high), self._reduce(np.maximum, low, high), means)

    def _reduce(self, ufunc: np.ufunc, low: NDArray[np.int64], high: NDArray[np.int64]) -> Numbers:
        padded = np.append(self.values, self.values[-1])
        bounds = np.column_stack([low, high]).ravel()
        reduced: Numbers = ufunc.reduceat(padded, bounds)[::2]
        return reduced


def is_sampled(run: Run, name: str) -> bool:
    """Only the samples of a log tell this gauge."""
    if name not in SAMPLED or name in known_columns(run):
        return False
    return not np.isnan(run.sample_column(SAMPLED[name])).all()


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A curve cut into buckets: `edges` (n + 1, seconds); `low`, `high`, `mean` (n)."""

    edges: Numbers
    low: Numbers
    high: Numbers
    mean: Numbers


def mean_over(curves: tuple[Curve, Curve], combine: Callable[[Numbers, Numbers], Numbers]) -> float:
    """The mean over time of `combine(a, b)`, from the earlier start to the later end of the two; 0 of no time."""
    a, b = curves
    moments = np.unique(np.concatenate([a.times, b.times]))
    spans = np.diff(moments)
    if not spans.sum():
        return 0.0
    values = combine(a.at(moments[:-1]), b.at(moments[:-1]))
    return float(values @ spans / spans.sum())
