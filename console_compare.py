"""What a person sees of a comparison of two runs."""

import math
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape

from .console import print_hanging, stdout
from .console_grid import Grid, Group, Row, print_grid
from .traces.compare import Comparison, MetricDifference
from .traces.decisions import Split
from .traces.summary_text import DASH, number, signed

SHOWN = (
    "steps", "makespan", "throughput", "running.mean", "forward_width.mean", "waiting.mean", "ttft.p50", "ttft.p99",
    "tpot.p50", "tpot.p99", "e2e.p50", "e2e.p99", "preemptions", "recomputed_tokens", "cached_tokens", "kv_peak",
)
"""The metrics of the table; --json has all."""
MILLISECONDS = ("ttft", "tpot", "e2e")
UNITS = {"makespan": "s", "throughput": "tok/s"} | dict.fromkeys(MILLISECONDS, "ms")
ENDED = "ended"


def print_comparison(comparison: Comparison, a: str, b: str) -> None:
    console = stdout()
    for side, path, arm, outcome in zip("ab", (a, b), comparison.arms, comparison.outcomes, strict=True):
        console.print(f"{side}: {escape(path)} ({arm}, {outcome})", soft_wrap=True)
    if comparison.split is None:
        console.print("decisions: [bold green]IDENTICAL[/] in every scheduling column of every step")
    else:
        _print_split(console, comparison.split)
    for grid in (_metrics(comparison), _gauges(comparison)):
        console.print()
        print_grid(console, grid)
    console.print()
    for reason in comparison.reasons:
        print_hanging(console, "- ", reason)


def _print_split(console: Console, split: Split) -> None:
    console.print(f"decisions: [bold red]DIFFERENT[/] from step {split.step:,} on")
    for name, (left, right) in split.columns.items():
        print_hanging(console, f"  {name}: ", f"{_value(left)} in a, {_value(right)} in b")
    pairs = [pair for pair in split.before_and_after if pair != (None, None)]
    names = next((list(row) for pair in pairs for row in pair if row is not None), [])
    groups = [Group("", [_side(side, row, names) for side, row in zip("ab", pair, strict=True)]) for pair in pairs]
    console.print()
    print_grid(console, Grid("the steps around it", names, groups))


def _side(side: str, row: Mapping[str, int] | None, names: list[str]) -> Row:
    return side, [ENDED, *[""] * (len(names) - 1)] if row is None else [f"{row[name]:,}" for name in names]


def _value(value: object) -> str:
    return "no such step" if value is None else str(value)


def _metrics(comparison: Comparison) -> Grid:
    rows = [_metric(metric) for metric in comparison.metrics if metric.name in SHOWN]
    return Grid("what it comes to", ("a", "b", "b against a"), [Group("", rows)])


def _metric(metric: MetricDifference) -> Row:
    kind, _, part = metric.name.partition(".")
    factor = 1e3 if kind in MILLISECONDS else 1
    label = " ".join(filter(None, (kind, part, UNITS.get(kind, ""))))
    change = f"{signed(100 * metric.relative)} %" if math.isfinite(metric.relative) else DASH
    return label, (number(factor * metric.a), number(factor * metric.b), change)


def _gauges(comparison: Comparison) -> Grid:
    rows: list[Row] = [
        (gauge.name, (number(gauge.a), number(gauge.b), signed(gauge.difference), number(gauge.mean_absolute)))
        for gauge in comparison.gauges
    ]
    names = ("mean of a", "mean of b", "difference", "mean absolute difference")
    return Grid("on one time axis", names, [Group("", rows)])
