"""What a page draws of a run: its summary, its curves and its worst requests, thinned so that it stays small."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .curve import Curve
from .gauge_curve import GaugeCurve
from .known import known_columns, untold
from .metrics import Summary, summarise
from .quantities import REQUEST_QUANTITIES
from .run import Run
from .worst import described

PANELS = ("running", "forward_width", "waiting", "kv_used")
LATENCIES = ("ttft", "tpot", "e2e")
TOKENS = ("decode", "prefill", "recomputed", "cached")
HOST_SHARE = 0.1
"""Of a step's median time: a shorter gap between two steps is not drawn."""
POINTS = 2_000
_ALL_POINTS = 32_000
_ALL_REQUESTS = 1_000


def points_for(views: int) -> int:
    """How many points a curve of each of `views` runs on one page may have."""
    return max(120, min(POINTS, _ALL_POINTS // max(1, views)))


@dataclass(frozen=True, slots=True)
class RunView:
    """`panels` maps a step column to its curve over time, `latencies` ttft, tpot and e2e to its distribution.

    A panel is exact, `{"x", "y"}`: seconds, and the value that holds from there; or, where the run has more than
    `points` changes, `{"from", "width", "low", "high", "mean"}`: equal buckets of `width` seconds with the lowest,
    highest and time-weighted mean value in each, so that no peak is lost. `"sampled"`: see `GaugeCurve`.
    A distribution is `{"x", "y"}`:
    milliseconds, and the share of requests at or below. `tokens`: what each step computed or took from the cache, as
    `{"x", "decode", "prefill", "recomputed", "cached"}` or, in buckets, means and the `"high"` of their sum.
    `marks`: where sequences were preempted, `{"x", "y", "n"}`: seconds, the running gauge there, how many.
    `requests`: see `worst.described`. All are lists of numbers and texts, small enough to be sent about.
    `untold`: fields of the summary about which the run says nothing.
    """

    summary: Summary
    panels: dict[str, dict[str, Any]]
    latencies: dict[str, dict[str, Any]]
    tokens: dict[str, Any]
    marks: dict[str, list[float]]
    requests: list[dict[str, Any]]
    untold: Collection[str] = ()

    @classmethod
    def of(cls, run: Run, points: int = POINTS, also: Collection[str] = (), moved: float = 0.0) -> "RunView":
        """`also`: names of requests that are described though they were not served badly here. `moved`: seconds that
        are added to the times of its curves."""
        held = _between_steps(run)
        gauges = {name: GaugeCurve.of(run, name, held) for name in PANELS}
        return cls(
            summary=summarise(run), panels={name: _panel(gauge, points, moved) for name, gauge in gauges.items()},
            latencies={name: _distribution(REQUEST_QUANTITIES[name](run), points // 4) for name in LATENCIES},
            tokens=_tokens(run, points, moved, held), marks=_marks(run, points // 4, moved),
            requests=described(run, requests_for(points), also), untold=untold(run),
        )


def requests_for(points: int) -> int:
    """How many of the worst requests, by each measure, go with curves of `points` points."""
    return max(2, min(10, points * _ALL_REQUESTS // _ALL_POINTS // 5))


def _panel(gauge: GaugeCurve, points: int, moved: float) -> dict[str, Any]:
    curve, sampled = gauge.curve.moved(moved), {"sampled": True} if gauge.sampled else {}
    if len(curve.times) <= points:
        return {"x": _rounded(curve.times, 6), "y": _rounded(curve.values, 3), **sampled}
    edges = np.linspace(curve.start, curve.end, points // 3 + 1)
    envelope = curve.envelope(edges)
    return _buckets(edges) | sampled | {
        "low": _rounded(envelope.low, 3), "high": _rounded(envelope.high, 3), "mean": _rounded(envelope.mean, 3),
    }


def _buckets(edges: NDArray[np.float64]) -> dict[str, Any]:
    return {"from": float(edges[0]), "width": float(edges[1] - edges[0])}


def _between_steps(run: Run) -> float:
    """Seconds that do not count as idle: a measured engine takes a moment from one step to the next."""
    return HOST_SHARE * float(np.median(run.step_seconds())) if run.steps.num_rows else 0.0


def _tokens(run: Run, points: int, moved: float, held: float) -> dict[str, Any]:
    if not {"decode_tokens", "prefill_tokens"} <= set(known_columns(run)):
        return {name: [] for name in ("x", *TOKENS)}
    times = Curve.of(run, "decode_tokens", held).times + moved
    values = {name: Curve.of(run, f"{name}_tokens", held).values for name in TOKENS}
    values["prefill"] = np.maximum(values["prefill"] - values["recomputed"], 0)  # what is computed for the first time
    if len(times) <= points:
        return {"x": _rounded(times, 6), **{name: _rounded(of, 3) for name, of in values.items()}}
    edges = np.linspace(times[0], times[-1], points // 3 + 1)
    means = {name: _rounded(Curve(times, of).envelope(edges).mean, 2) for name, of in values.items()}
    total = Curve(times, np.sum(list(values.values()), axis=0))
    return _buckets(edges) | means | {"high": _rounded(total.envelope(edges).high, 3)}


def _marks(run: Run, points: int, moved: float) -> dict[str, list[float]]:
    counts = run.column("preempted")
    where = np.flatnonzero(counts)
    times, running = run.column("t_start")[where] + moved, run.column("running")[where].astype(np.float64)
    counts = counts[where].astype(np.float64)
    if len(where) > points:
        edges = np.linspace(times[0], times[-1], points, endpoint=False)
        firsts = np.unique(np.searchsorted(times, edges))  # of each bucket that holds any
        times, running = times[firsts], np.maximum.reduceat(running, firsts)
        counts = np.add.reduceat(counts, firsts)
    return {"x": _rounded(times, 6), "y": _rounded(running, 3), "n": _rounded(counts, 3)}


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
