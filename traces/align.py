"""Two runs on one time axis: how far the clock of the second must be moved."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .curve import Curve, is_sampled
from .known import KEY
from .run import Run

Floats = NDArray[np.float64]
POINTS = 8_192
"""Of the grid on which two curves are slid along each other, over the longer of them."""
TRIED = 401
"""Offsets at which points are held against a curve."""
HELD = 8_192
"""Points that are held against it: of a longer log every second one, every third, ..."""
SAME = 1e-3
"""Seconds by which arrivals may be off a common offset and still be the same ones."""


@dataclass(frozen=True, slots=True)
class Offset:
    """`seconds` are added to the times of b.

    `found`: `given` by the user; `arrivals`, where both runs served the same requests at the same distances in time;
    `clock`, where both clocks start with the run; `correlation`, where the gauge was slid along the other until the two
    lay closest. `correlation`: of the two gauges over time at that offset (Pearson; NaN where one never moves).
    """

    seconds: float
    found: Literal["given", "arrivals", "clock", "correlation"]
    correlation: float


def find_offset(a: Run, b: Run, given: float | None = None) -> Offset:
    """Imported logs have clocks of their own; other runs start theirs with the run."""
    curves = Curve.of(a, "running"), Curve.of(b, "running")
    if given is not None:
        return Offset(given, "given", _correlation(*curves, given))
    by_arrival = _by_arrivals(a, b)
    if by_arrival is not None:
        return Offset(by_arrival, "arrivals", _correlation(*curves, by_arrival))
    if not (_own_clock(a) or _own_clock(b)):
        return Offset(0.0, "clock", _correlation(*curves, 0.0))
    slid = slide(*curves)
    for curve, run, sign in ((curves[0], b, 1.0), (curves[1], a, -1.0)):
        if is_sampled(run, "running") and len(curve.times):
            slid = sign * match(curve, Curve.points(run, "running"), sign * slid)
    return Offset(slid, "correlation", _correlation(*curves, slid))


def _by_arrivals(a: Run, b: Run) -> float | None:
    """The one distance between the arrivals of the same requests; None where there is none."""
    if not a.requests.num_rows or a.requests.num_rows != b.requests.num_rows:
        return None
    left, right = (run.requests.select(["id", "arrival"]).sort_by("id") for run in (a, b))
    if not left.column("id").equals(right.column("id")):
        return None
    apart = left.column("arrival").to_numpy() - right.column("arrival").to_numpy()
    if not np.ptp(apart) <= SAME:  # nor where one of them is not known
        return None
    middle = float(np.median(apart))
    return 0.0 if abs(middle) <= SAME else middle


def slide(a: Curve, b: Curve) -> float:
    """Seconds to add to b for the least squared distance to a; both are 0 where they have no values, as an engine is
    before its first step and after its last. 0 where one of them is empty."""
    span = max(a.end - a.start, b.end - b.start)
    if not len(a.times) or not len(b.times) or span <= 0:
        return 0.0
    width = span / POINTS
    left, right = (_means(curve, width) for curve in (a, b))
    size = len(left) + len(right) - 1
    products = np.fft.irfft(np.fft.rfft(left, size) * np.conj(np.fft.rfft(right, size)), size)
    place = int(np.argmax(products))
    lag = place if place < len(left) else place - size
    return float(a.start + lag * width - b.start)


def match(curve: Curve, points: tuple[Floats, Floats], near: float) -> float:
    """Seconds to add to the times of the points for the least squared distance to the curve there, within two mean
    intervals of `near`; the middle one of several as good. Points know a moment, not what lies between them."""
    times, values = points
    if len(times) < 2:
        return near
    reach, every = 2 * float(times[-1] - times[0]) / (len(times) - 1), -(-len(times) // HELD)
    times, values = times[::every], values[::every]
    tried = near + np.linspace(-reach, reach, TRIED)
    distances = np.array([np.mean((curve.at(times + each) - values) ** 2) for each in tried])
    best = np.flatnonzero(distances == distances.min())
    return float(tried[best[len(best) // 2]])


def _means(curve: Curve, width: float) -> Floats:
    """The curve's mean in each cell of `width` seconds from its start on."""
    cells = max(1, int(np.ceil((curve.end - curve.start) / width)))
    edges: Floats = curve.start + width * np.arange(cells + 1, dtype=np.float64)
    return np.asarray(np.diff(curve.integral(edges)) / width, dtype=np.float64)


def _correlation(a: Curve, b: Curve, offset: float) -> float:
    moved = b.moved(offset)
    start, end = min(a.start, moved.start), max(a.end, moved.end)
    if not len(a.times) or not len(b.times) or end <= start:
        return float("nan")
    edges = np.linspace(start, end, POINTS // 4 + 1, dtype=np.float64)
    left, right = (np.diff(curve.integral(edges)) / np.diff(edges) for curve in (a, moved))
    if not left.std() or not right.std():
        return float("nan")
    return float(np.corrcoef(left, right)[0, 1])


def _own_clock(run: Run) -> bool:
    """What was imported from a log."""
    return KEY in run.meta or not run.steps.num_rows
