"""In one or two sentences, why two runs differ: the rules, the cost of a step, or queueing on top of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from .decisions import Split
from .metrics import Summary
from .step_cost import StepCost
from .summary_text import percent

SATURATED = 0.5
"""Share of TTFT that requests wait to be scheduled, from which on the queue decides."""
BUSY = 0.9
"""Share of the time in which steps ran, from which on what a step costs feeds back on how many run."""
NOTABLE = 0.02
"""A relative difference that is told; less is what an engine differs from itself."""
LEAST = 5e-4
"""What is told as 0.0 %."""
MOST = 4
"""Of differing columns or settings that are told."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What can be said of two runs without looking at their latencies. `step_level`: both say what each step did.
    `same_arrivals`: their requests came at the same times; `arrivals_known`: both say before which step they came;
    `other_arrivals`: the first that part them (see there). Up to it both decide alike, and who is there in time depends
    on how long the steps before took. `settings`: keys of the configuration that differ, with both values."""

    summaries: tuple[Summary, Summary]
    step_level: bool
    split: Split | None
    requests_known: bool
    same_requests: bool
    same_arrivals: bool
    arrivals_known: bool
    other_arrivals: tuple[int, int, int] | None
    same_times: bool
    costs: tuple[StepCost, ...]
    settings: Mapping[str, tuple[Any, Any]]

    def cost(self, name: str) -> StepCost:
        return next(cost for cost in self.costs if cost.name == name)


def why(grounds: Grounds) -> Iterator[str]:
    """The first sentence is on the decisions, the second on the times."""
    if not grounds.same_requests and grounds.requests_known:
        yield "The two runs did not serve the same requests (names or prompt lengths differ)."
    elif not grounds.step_level:
        yield "The steps of at least one run are not known: what both tell of gauges and latencies is all there is."
    elif grounds.split is None:
        yield _alike(grounds)
    elif grounds.other_arrivals is not None:
        yield _late(*grounds.other_arrivals, grounds.same_arrivals)
    else:
        yield _parting(grounds.split, grounds.settings, grounds.arrivals_known)
    times = _times(grounds)
    if times:
        yield times


def _alike(grounds: Grounds) -> str:
    steps = grounds.summaries[0].steps
    if grounds.same_times:
        return f"All {steps:,} steps agree, in decisions and in times."
    return f"All {steps:,} scheduling decisions agree; only the times of the steps differ."


def _late(step: int, a: int, b: int, same_arrivals: bool) -> str:
    because = "the steps before it took another time" if same_arrivals else "requests come at other times"
    return (
        f"Both decide alike up to step {step:,}, before which other requests had arrived (new ones: {a} in a, "
        f"{b} in b): {because}, "
        "the rules do not differ up to there."
    )


def _parting(split: Split, settings: Mapping[str, tuple[Any, Any]], arrivals_known: bool) -> str:
    if None in split.columns.get("step", ()):
        ended, other = ("a", "b") if split.columns["step"][0] is None else ("b", "a")
        return f"The decisions agree until {ended} ends after {split.step:,} steps; {other} goes on."
    differ = f"; their settings differ: {_pairs(settings)}" if settings else ""
    same = " with the same arrivals, so it is the rules, not the times" if arrivals_known else ""
    return f"The decisions part at step {split.step:,}{same}: {_pairs(split.columns)}{differ}."


def _pairs(values: Mapping[str, tuple[Any, Any]]) -> str:
    told = ", ".join(f"{name} {a} and {b}" for name, (a, b) in list(values.items())[:MOST])
    return told if len(values) <= MOST else f"{told} and {len(values) - MOST} more"


def _times(grounds: Grounds) -> str:
    """What alike steps cost, and what queueing made of it."""
    every = grounds.cost("all")
    if grounds.same_times or not isfinite(every.relative):
        return ""
    parts = [(name, grounds.cost(name).relative) for name in ("decode", "prefill")]
    told = ", ".join(f"{_NAMED[name]} {_more(change)}" for name, change in parts if isfinite(change))
    return f"Alike steps cost {_more(every.relative)} in b ({told}){_queueing(grounds, every.relative)}."


_NAMED = {"decode": "decode steps", "prefill": "steps with prefill"}


def _more(change: float) -> str:
    if abs(change) < LEAST:
        return "the same"
    return f"{percent(abs(change))} {'more' if change >= 0 else 'less'}"


def _queueing(grounds: Grounds, cost: float) -> str:
    """Only where the latencies differ far more than the steps do."""
    a, b = grounds.summaries
    busy = f"steps run {percent(a.busy)} of the time in a and {percent(b.busy)} in b"
    change = b.ttft.p50 / a.ttft.p50 - 1 if a.ttft.count and b.ttft.count and a.ttft.p50 else 0.0
    if abs(change) < max(NOTABLE, 2 * abs(cost)):
        return f"; {busy}"
    amplified = f"TTFT p50 is {_more(change)}"
    queued = max(_queued(a), _queued(b))
    if queued >= SATURATED:
        return (f"; {busy}, and up to {percent(queued)} of TTFT is waiting to be scheduled: queueing amplifies every "
                f"difference, and {amplified}")
    if max(a.busy, b.busy) >= BUSY:
        return f"; {busy}: the cost of a step feeds back on how many run, and {amplified}"
    return f"; {busy}: below saturation, where {amplified}"


def _queued(summary: Summary) -> float:
    """The share of TTFT before the first step, over all requests that got a token; 0 of none."""
    return summary.queue.mean / summary.ttft.mean if summary.ttft.count and summary.ttft.mean else 0.0
