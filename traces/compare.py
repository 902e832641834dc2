"""Two runs side by side: where their decisions part, how far their numbers differ, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .curve import Curve, mean_over
from .decisions import Split, equal_steps, first_split
from .metrics import Summary, summarise
from .plain import plain
from .reasons import reasons
from .run import Run
from .spread import NAN, Gauge, Spread
from .time_split import TimeSplit

__all__ = ["Comparison", "GaugeDifference", "MetricDifference", "TimeSplit", "compare", "equal_steps"]

NOT_COMPARED = ("arm", "outcome", "requests")


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """`relative` is b / a - 1; NaN where a is 0 or either has no value."""

    name: str
    a: float
    b: float
    relative: float


@dataclass(frozen=True, slots=True)
class GaugeDifference:
    """A gauge of both runs on one time axis, from the earlier start to the later end. `a`, `b`: means over that
    time; `mean_absolute`: mean of their distance at each moment."""

    name: str
    a: float
    b: float
    difference: float
    mean_absolute: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`same_requests`: both served requests of the same names and prompt lengths (arrivals may differ: a closed loop's
    do). `identical`: every scheduling column of every step is equal; else `split` is the first step that is not.
    `same_times`: the times of all steps are equal. `reasons`: what the differences come from, in sentences.
    """

    arms: tuple[str, str]
    outcomes: tuple[str, str]
    same_requests: bool
    identical: bool
    same_times: bool
    split: Split | None
    metrics: tuple[MetricDifference, ...]
    gauges: tuple[GaugeDifference, ...]
    time: TimeSplit
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: NaN becomes None."""
        return dict(plain(self))


def compare(a: Run, b: Run) -> Comparison:
    """Compare any two runs, of the same or of different arms."""
    split, same_requests, same_times = first_split(a, b), _same_requests(a, b), _same_times(a, b)
    summaries, time = (summarise(a), summarise(b)), TimeSplit.of(a, b)
    return Comparison(
        arms=(a.arm, b.arm), outcomes=(a.outcome, b.outcome), same_requests=same_requests, identical=split is None,
        same_times=same_times, split=split, metrics=tuple(_metrics(*summaries)),
        gauges=tuple(_gauge(a, b, name) for name in ("running", "forward_width", "waiting")), time=time,
        reasons=tuple(reasons(summaries, split, same_requests, same_times, time)),
    )


def _metrics(a: Summary, b: Summary) -> Iterator[MetricDifference]:
    for (name, left), (_, right) in zip(_numbers(a), _numbers(b), strict=True):
        yield MetricDifference(name, left, right, _relative(left, right))


def _numbers(summary: Summary) -> Iterator[tuple[str, float]]:
    """Every number of a summary, those of its gauges and spreads as `name.statistic`."""
    for name in summary.__dataclass_fields__:
        value = getattr(summary, name)
        if isinstance(value, Gauge | Spread):
            yield from ((f"{name}.{part}", float(getattr(value, part))) for part in value.__dataclass_fields__)
        elif name not in NOT_COMPARED:
            yield name, float(value)


def _relative(a: float, b: float) -> float:
    if a == b:
        return 0.0
    return b / a - 1 if a else NAN


def _gauge(a: Run, b: Run, name: str) -> GaugeDifference:
    curves = (Curve.of(a, name), Curve.of(b, name))
    mean_a, mean_b = mean_over(curves, lambda x, _: x), mean_over(curves, lambda _, y: y)
    distance = mean_over(curves, lambda x, y: np.abs(x - y))
    return GaugeDifference(name, mean_a, mean_b, mean_b - mean_a, distance)


def _same_requests(a: Run, b: Run) -> bool:
    tables = [run.requests.select(["id", "prompt_tokens"]).sort_by("id") for run in (a, b)]
    return bool(tables[0].equals(tables[1]))


def _same_times(a: Run, b: Run) -> bool:
    return all(a.steps.column(name).equals(b.steps.column(name)) for name in ("t_start", "t_end"))
