"""What the report draws of a run: its summary and its curves, thinned so that a page stays small."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .curve import Curve
from .metrics import Summary, summarise
from .quantities import REQUEST_QUANTITIES
from .run import Run

PANELS = ("running", "forward_width", "waiting", "kv_used")
LATENCIES = ("ttft", "tpot", "e2e")
POINTS = 2_000
_ALL_POINTS = 32_000


def points_for(views: int) -> int:
    """How many points a curve of each of `views` runs on one page may have."""
    return max(120, min(POINTS, _ALL_POINTS // max(1, views)))


@dataclass(frozen=True, slots=True)
class RunView:
    """`panels` maps a step column to its curve over time, `latencies` ttft, tpot and e2e to its distribution.

    A panel is exact, `{"x", "y"}`: seconds, and the value that holds from there; or, where the run has more than
    `points` changes, `{"from", "width", "low", "high", "mean"}`: equal buckets of `width` seconds with the lowest,
    highest and time-weighted mean value in each, so that no peak is lost. A distribution is `{"x", "y"}`:
    milliseconds, and the share of requests at or below. All are lists of numbers, small enough to be sent about.
    """

    summary: Summary
    panels: dict[str, dict[str, Any]]
    latencies: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, run: Run, points: int = POINTS) -> "RunView":
        panels = {name: _panel(Curve.of(run, name), points) for name in PANELS}
        latencies = {name: _distribution(REQUEST_QUANTITIES[name](run), points // 4) for name in LATENCIES}
        return cls(summarise(run), panels, latencies)


def _panel(curve: Curve, points: int) -> dict[str, Any]:
    if len(curve.times) <= points:
        return {"x": _rounded(curve.times, 6), "y": _rounded(curve.values, 3)}
    edges = np.linspace(curve.start, curve.end, points // 3 + 1)
    envelope = curve.envelope(edges)
    return {
        "from": float(edges[0]), "width": float(edges[1] - edges[0]), "low": _rounded(envelope.low, 3),
        "high": _rounded(envelope.high, 3), "mean": _rounded(envelope.mean, 3),
    }


def _distribution(seconds: NDArray[np.float64], points: int) -> dict[str, Any]:
    if not len(seconds):
        values = shares = seconds
    elif len(seconds) <= points:
        values, shares = np.sort(seconds), np.arange(len(seconds) + 1) / len(seconds)
        values = np.insert(values, 0, values[0])  # the curve rises from 0
    else:
        tail = points // 4
        shares = np.concatenate([np.linspace(0, 0.99, points - tail, endpoint=False), np.linspace(0.99, 1, tail)])
        values = np.quantile(seconds, shares)
    return {"x": _rounded(1e3 * values, 4), "y": _rounded(shares, 5)}


def _rounded(values: NDArray[np.float64], digits: int) -> list[float]:
    whole = bool(np.all(values == np.rint(values)))
    numbers: list[float] = (values.astype(np.int64) if whole else np.round(values, digits)).tolist()
    return numbers
