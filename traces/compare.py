"""Two runs side by side: where their decisions part, how far their numbers differ, and why."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .align import Offset, find_offset
from .curve import Curve, is_sampled, mean_over
from .decisions import Split, compared_columns, equal_steps, first_split, other_arrivals
from .known import known_columns, knows, untold
from .metrics import Summary, summarise
from .plain import plain
from .reasons import reasons
from .run import Run
from .settings import settings
from .spread import NAN, Gauge, Spread
from .step_cost import StepCost, step_costs
from .summary_text import number
from .time_split import TimeSplit
from .why import Grounds, why

__all__ = ["Comparison", "GaugeDifference", "MetricDifference", "TimeSplit", "compare", "equal_steps"]

NOT_COMPARED = ("arm", "outcome", "requests")
GAUGES = ("running", "forward_width", "waiting")


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """`relative` is b / a - 1; NaN where a is 0 or either has no value."""

    name: str
    a: float
    b: float
    relative: float


@dataclass(frozen=True, slots=True)
class GaugeDifference:
    """A gauge that both runs tell, on one time axis, from the earlier start to the later end. `a`, `b`: means over that
    time; `mean_absolute`: mean of their distance at each moment."""

    name: str
    a: float
    b: float
    difference: float
    mean_absolute: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`same_requests`: both served requests of the same names and prompt lengths (arrivals may differ: a closed loop's
    do). `at_once`: all of them arrive before the first step, so that no decision can depend on a time.
    `step_level`: both say what each step did; then `identical` says that every scheduling column of every step is
    equal, else `split` is the first step that is not (`columns_compared`: those that both know). `same_times`: the
    times of all steps are equal. `offset`: how the clock of b was moved for the gauges.

    `why`: in one or two sentences, what made them differ. `reasons`: what the differences are made of. `costs`: what
    alike steps cost; beside the latencies they tell a wrong step cost from queueing. `settings`: keys of the two
    configurations that differ, with both values.
    """

    arms: tuple[str, str]
    outcomes: tuple[str, str]
    same_requests: bool
    at_once: bool
    step_level: bool
    identical: bool
    same_times: bool
    split: Split | None
    columns_compared: tuple[str, ...]
    offset: Offset
    metrics: tuple[MetricDifference, ...]
    gauges: tuple[GaugeDifference, ...]
    costs: tuple[StepCost, ...]
    time: TimeSplit
    settings: dict[str, tuple[Any, Any]]
    why: tuple[str, ...]
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: NaN becomes None."""
        return dict(plain(self))


def compare(a: Run, b: Run, offset: float | None = None) -> Comparison:
    """Compare any two runs, of the same or of different arms. `offset`: seconds to add to the times of b, where it is
    not to be found."""
    step_level = a.steps.num_rows > 0 and b.steps.num_rows > 0
    split = first_split(a, b)
    summaries, moved, columns = (summarise(a), summarise(b)), find_offset(a, b, offset), compared_columns(a, b)
    grounds = Grounds(
        summaries=summaries, step_level=step_level, split=split,
        requests_known=a.requests.num_rows > 0 and b.requests.num_rows > 0, same_requests=_same_requests(a, b),
        same_arrivals=moved.found == "arrivals",
        arrivals_known=step_level and any(column.name == "arrived" for column in columns),
        other_arrivals=other_arrivals(a, b), same_times=_same_times(a, b), costs=step_costs(a, b),
        settings=settings(a, b),
    )
    identical, time = split is None and step_level, TimeSplit.of(a, b)
    gauges = tuple(_gauges(a, b, moved.seconds))
    return Comparison(
        arms=(a.arm, b.arm), outcomes=(a.outcome, b.outcome), same_requests=grounds.same_requests,
        at_once=_at_once(a) and _at_once(b), step_level=step_level, identical=identical,
        same_times=grounds.same_times, split=split, columns_compared=tuple(column.name for column in columns),
        offset=moved, metrics=tuple(_metrics((a, b), summaries)), gauges=gauges,
        costs=grounds.costs, time=time, settings=dict(grounds.settings),
        why=tuple(why(grounds)) + (() if step_level else tuple(_of_gauges(gauges))),
        reasons=tuple(
            reasons(summaries, identical, grounds.same_times, time, untold(a) | untold(b)) if step_level else ()
        ),
    )


def _metrics(runs: tuple[Run, Run], summaries: tuple[Summary, Summary]) -> Iterator[MetricDifference]:
    """What an imported run does not tell is NaN."""
    for (name, left), (_, right) in zip(*map(_numbers, summaries), strict=True):
        field = name.partition(".")[0]
        left, right = (value if knows(run, field) else NAN for run, value in zip(runs, (left, right), strict=True))
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


def _gauges(a: Run, b: Run, offset: float) -> Iterator[GaugeDifference]:
    for name in GAUGES:
        if not all(knows(run, name) or is_sampled(run, name) for run in (a, b)):
            continue
        curves = (Curve.of(a, name), Curve.of(b, name).moved(offset))
        mean_a, mean_b = mean_over(curves, lambda x, _: x), mean_over(curves, lambda _, y: y)
        distance = mean_over(curves, lambda x, y: np.abs(x - y))
        yield GaugeDifference(name, mean_a, mean_b, mean_b - mean_a, distance)


def _of_gauges(gauges: Iterable[GaugeDifference]) -> Iterator[str]:
    """All that can be said where no steps are known."""
    told = [
        f"{gauge.name} is {number(gauge.a)} in a and {number(gauge.b)} in b ({number(gauge.mean_absolute)} apart at a "
        "moment)" for gauge in gauges
    ]
    if told:
        yield f"On average over time {'; '.join(told)}."


def _same_requests(a: Run, b: Run) -> bool:
    tables = [run.requests.select(["id", "prompt_tokens"]).sort_by("id") for run in (a, b)]
    return bool(tables[0].equals(tables[1]))


def _same_times(a: Run, b: Run) -> bool:
    return all(a.steps.column(name).equals(b.steps.column(name)) for name in ("t_start", "t_end"))


def _at_once(run: Run) -> bool:
    """No step but the first found new arrivals."""
    known = run.steps.num_rows and "arrived" in known_columns(run)
    return bool(known) and run.requests.num_rows > 0 and not run.column("arrived")[1:].any()
