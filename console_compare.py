"""What a person sees of a comparison of two runs."""

from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .console import stdout
from .traces.compare import Comparison
from .traces.decisions import Split
from .traces.summary_text import number, signed

SHOWN = (
    "steps", "makespan", "throughput", "running.mean", "forward_width.mean", "waiting.mean", "ttft.p50", "ttft.p99",
    "tpot.p50", "tpot.p99", "e2e.p50", "e2e.p99", "preemptions", "recomputed_tokens", "cached_tokens", "kv_peak",
)
"""The metrics of the table; --json has all."""


def print_comparison(comparison: Comparison, a: str, b: str) -> None:
    console = stdout()
    console.print(f"a: {escape(a)} ({comparison.arms[0]}, {comparison.outcomes[0]})", soft_wrap=True)
    console.print(f"b: {escape(b)} ({comparison.arms[1]}, {comparison.outcomes[1]})", soft_wrap=True)
    if comparison.split is None:
        console.print("decisions: [bold green]IDENTICAL[/] in every scheduling column of every step")
    else:
        _print_split(console, comparison.split)
    console.print(_metrics(comparison))
    console.print(_gauges(comparison))
    for reason in comparison.reasons:
        console.print(f"- {escape(reason)}")


def _print_split(console: Console, split: Split) -> None:
    console.print(f"decisions: [bold red]DIFFERENT[/] from step {split.step} on")
    for name, (left, right) in split.columns.items():
        console.print(f"  {name}: {_value(left)} in a, {_value(right)} in b")
    rows = [pair for pair in split.before_and_after if pair != (None, None)]
    names = next((list(row) for pair in rows for row in pair if row is not None), [])
    table = Table("", *names, title="around it (a / b)", title_justify="left")
    for pair in rows:
        for side, row in zip("ab", pair, strict=True):
            table.add_row(side, *_cells(row, names))
    console.print(table)


def _cells(row: Mapping[str, int] | None, names: list[str]) -> list[str]:
    return ["ended"] + [""] * (len(names) - 1) if row is None else [str(row[name]) for name in names]


def _value(value: object) -> str:
    return "no such step" if value is None else str(value)


def _metrics(comparison: Comparison) -> Table:
    table = Table(title="metrics (seconds, tokens, counts)", title_justify="left")
    for name in ("", "a", "b", "b against a"):
        table.add_column(name, justify="left" if not name else "right")
    for metric in comparison.metrics:
        if metric.name in SHOWN:
            table.add_row(metric.name, number(metric.a), number(metric.b), f"{signed(100 * metric.relative)} %")
    return table


def _gauges(comparison: Comparison) -> Table:
    table = Table(title="on one time axis", title_justify="left")
    for name in ("", "mean of a", "mean of b", "difference", "mean absolute difference"):
        table.add_column(name, justify="left" if not name else "right")
    for gauge in comparison.gauges:
        numbers = (number(gauge.a), number(gauge.b), signed(gauge.difference), number(gauge.mean_absolute))
        table.add_row(gauge.name, *numbers)
    return table
