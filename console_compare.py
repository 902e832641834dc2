"""What a person sees of a comparison of two runs."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape

from .console import print_hanging, stdout
from .console_fit import print_regions
from .console_grid import Grid, Group, Row, print_grid
from .sim.cross_validation import RegionError
from .traces.align import Offset
from .traces.compare import Comparison, MetricDifference
from .traces.comparison_tables import FOUND, KINDS
from .traces.decisions import DECISIONS, Split
from .traces.summary_text import change, number, percent, signed

SHOWN = (
    "steps", "makespan", "busy", "throughput", "running.mean", "forward_width.mean", "waiting.mean", "preemptions",
    "recomputed_tokens", "cached_tokens", "kv_peak",
)
"""The metrics of the first table; --json has all."""
LATENCIES = ("ttft", "tpot", "e2e")
PARTS = ("mean", "p50", "p90", "p99")
UNITS = {"makespan": "s", "throughput": "tok/s"}
ENDED = "ended"


def print_comparison(
    comparison: Comparison, a: str, b: str, model_errors: Mapping[str, Sequence[RegionError]] = MappingProxyType({}),
) -> None:
    """`model_errors`: of the latency model of either side, where it is simulated, on the other's steps."""
    console = stdout()
    for side, path, arm, outcome in zip("ab", (a, b), comparison.arms, comparison.outcomes, strict=True):
        console.print(f"{side}: {escape(path)} ({arm}, {outcome})", soft_wrap=True)
    _print_decisions(console, comparison)
    for sentence in comparison.why:
        print_hanging(console, "why: ", sentence)
    for grid in (_metrics(comparison), _latencies(comparison), _costs(comparison), _gauges(comparison)):
        if any(group.rows for group in grid.groups):
            console.print()
            print_grid(console, grid)
    print_hanging(console, "clock of b: ", _offset(comparison.offset))
    for side, errors in model_errors.items():
        if errors:
            console.print()
            print_regions(console, f"the latency model of {side} on the steps that the other side ran", errors)
    console.print()
    for reason in comparison.reasons:
        print_hanging(console, "- ", reason)


def print_replayed(comparison: Comparison, run: str) -> None:
    """The decisions alone: the times are the run's."""
    console = stdout()
    console.print(f"a: {escape(run)} ({comparison.arms[0]}, {comparison.outcomes[0]})", soft_wrap=True)
    console.print(f"b: decided again at its step times ({comparison.outcomes[1]})", soft_wrap=True)
    _print_decisions(console, comparison)
    for sentence in comparison.why:
        print_hanging(console, "why: ", sentence)


def _print_decisions(console: Console, comparison: Comparison) -> None:
    if comparison.split is not None and comparison.step_level:
        _print_split(console, comparison.split)
    elif comparison.identical:
        partly = len(comparison.columns_compared) < len(DECISIONS)
        columns = f"the scheduling columns that both know ({', '.join(comparison.columns_compared)})" if partly else (
            "every scheduling column"
        )
        console.print(f"decisions: [bold green]IDENTICAL[/] in {columns} of every step", soft_wrap=True)
    else:
        console.print("decisions: not comparable, the steps of at least one run are not known")


def _offset(offset: Offset) -> str:
    """How it was moved."""
    known = "" if math.isnan(offset.correlation) else f"; the gauges then correlate with {offset.correlation:.3f}"
    return f"{offset.seconds:+.3f} s ({FOUND[offset.found]}){known}"


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
    known = [metric for metric in comparison.metrics if not (math.isnan(metric.a) and math.isnan(metric.b))]
    rows = [_metric(metric) for metric in known if metric.name in SHOWN]
    return Grid("what it comes to", ("a", "b", "b against a"), [Group("", rows)])


def _metric(metric: MetricDifference) -> Row:
    kind, _, part = metric.name.partition(".")
    label = " ".join(filter(None, (kind, part, UNITS.get(kind, ""))))
    return label, (number(metric.a), number(metric.b), change(metric.relative))


def _latencies(comparison: Comparison) -> Grid:
    found = {metric.name: metric for metric in comparison.metrics}
    groups = []
    for name in LATENCIES:
        if not found[f"{name}.count"].a and not found[f"{name}.count"].b:
            continue
        metrics = [found[f"{name}.{part}"] for part in PARTS]
        rows: list[Row] = [
            ("a", [number(1e3 * metric.a) for metric in metrics]),
            ("b", [number(1e3 * metric.b) for metric in metrics]),
            ("b against a", [change(metric.relative) for metric in metrics]),
        ]
        groups.append(Group(f"{name.upper()} ms", rows))
    return Grid("latencies", PARTS, groups)


def _costs(comparison: Comparison) -> Grid:
    rows: list[Row] = [
        (KINDS[cost.name], (f"{cost.steps[0]:,}", f"{cost.steps[1]:,}", number(1e3 * cost.a), number(1e3 * cost.b),
                            change(cost.relative), percent(cost.covered)))
        for cost in comparison.costs if math.isfinite(cost.relative)
    ]
    names = ("steps of a", "steps of b", "ms in a", "ms in b", "b against a", "of a's time")
    return Grid("what alike steps cost (those of a, at the costs of either)", names, [Group("", rows)])


def _gauges(comparison: Comparison) -> Grid:
    rows: list[Row] = [
        (gauge.name, (number(gauge.a), number(gauge.b), signed(gauge.difference), number(gauge.mean_absolute)))
        for gauge in comparison.gauges
    ]
    names = ("mean of a", "mean of b", "difference", "mean absolute difference")
    return Grid("on one time axis", names, [Group("", rows)])
