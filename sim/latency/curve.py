"""A cost that is known at some counts: straight lines in between."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at rising `knots`, linear between them.

    Below the first knot its value holds: the smallest pass seen is the floor. Beyond the last, the line from the
    knot at or below half of it goes on, and never falls: one short noisy segment must not decide what is far away.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, count: float) -> float:
        knots, values = self.knots, self.values
        if count <= knots[0]:
            return values[0]
        if count > knots[-1]:
            return values[-1] + self.far_slope * (count - knots[-1])
        place = bisect_left(knots, count)
        share = (count - knots[place - 1]) / (knots[place] - knots[place - 1])
        return values[place - 1] + share * (values[place] - values[place - 1])

    def at(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The curve at many counts, shape [counts]."""
        inside = np.interp(counts, np.array(self.knots, dtype=np.float64), np.array(self.values))
        return np.asarray(inside + self.far_slope * np.maximum(counts - self.knots[-1], 0.0), dtype=np.float64)

    @property
    def far_slope(self) -> float:
        near = anchor(self.knots)
        if near == len(self.knots) - 1:
            return 0.0
        return max((self.values[-1] - self.values[near]) / (self.knots[-1] - self.knots[near]), 0.0)


def anchor(knots: Sequence[float]) -> int:
    """The place of the knot from which the line beyond the last one is drawn; that of the last where it is alone."""
    return max(bisect_right(knots, knots[-1] / 2) - 1, 0)


def weights(counts: NDArray[np.float64], knots: Sequence[float]) -> NDArray[np.float64]:
    """How much each knot's value counts in the curve at `counts`: shape [counts, knots], rows that add up to 1.

    `weights @ values` is the curve, as long as it does not fall beyond the last knot.
    """
    place = np.asarray(knots, dtype=np.float64)
    columns = [np.interp(counts, place, unit) for unit in np.eye(len(place))]
    found = np.column_stack(columns)
    near, far = anchor(knots), counts > place[-1]
    if near < len(place) - 1:
        share = (counts[far] - place[-1]) / (place[-1] - place[near])
        found[far, -1] += share
        found[far, near] -= share
    return np.asarray(found, dtype=np.float64)
