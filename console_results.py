"""What a person sees of an experiment that has run: its tables, what was noticed, the verdict."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from .console import print_hanging, stderr, stdout
from .console_grid import Grid, Group, Row, print_grid
from .experiment.results import Results
from .experiment.target import REPORT
from .experiment.verdict import CONFIRMED, Verdict
from .traces.metrics import Summary
from .traces.spread import Gauge, Spread
from .traces.summary_text import DASH, number, summary_rows

STYLES = {"CONFIRMED": "bold green", "REFUTED": "bold red", "INVALID": "bold yellow", "holds": "green", "fails": "red"}
MANY_CELLS = 2
"""From this many cells on, one line a run instead of one column."""

Columns = Mapping[str, Callable[[Summary], str]]

BATCH: Columns = {
    "steps": lambda summary: f"{summary.steps:,}", "running": lambda summary: _gauge(summary.running),
    "forward width": lambda summary: _gauge(summary.forward_width), "waiting": lambda summary: _gauge(summary.waiting),
    "tok/s": lambda summary: number(summary.throughput), "preempted": lambda summary: f"{summary.preemptions:,}",
    "recomputed": lambda summary: f"{summary.recomputed_tokens:,}", "KV peak": lambda summary: f"{summary.kv_peak:,}",
}
LATENCY: Columns = {
    "TTFT": lambda summary: _milliseconds(summary.ttft), "TPOT": lambda summary: _milliseconds(summary.tpot),
    "E2E": lambda summary: _milliseconds(summary.e2e),
}


def print_results(results: Results, folder: Path) -> None:
    """Tables, what was noticed, the verdict, and where it all lies."""
    console = stdout()
    for grid in _grids(results):
        print_grid(console, grid)
        console.print()
    for note in results.notes:
        print_hanging(console, "note: ", note, "dim")
    _print_findings(console, results.verdict)
    print_verdict(results.verdict, console)
    console.print(f"report: {escape(str(folder / REPORT))}", soft_wrap=True)


def print_trouble(results: Results) -> None:
    """On stderr, whatever is printed of the results: why runs did not complete, and where nothing was served."""
    for key, run in results.runs.items():
        requests = results.summaries[key].requests
        nothing = "every request was rejected" if requests and set(requests) == {"rejected"} else ""
        trouble = run.meta["report"] or nothing
        if trouble:
            stderr().print(f"{escape(run.meta['origin'])}: {escape(trouble)}", soft_wrap=True)


def _grids(results: Results) -> Iterator[Grid]:
    name = results.plan.shape.name
    if len(results.plan.cells) < MANY_CELLS:
        yield _side_by_side(results, name)
        return
    yield _overview(results, f"{name}: the batch (gauges: mean / max over steps)", BATCH)
    yield _overview(results, f"{name}: latency in ms (p50 · p90 · p99)", LATENCY)


def _side_by_side(results: Results, title: str) -> Grid:
    """A column for each variant of the only cell."""
    names = list(results.by_cell[0])
    columns = [summary_rows(results.summaries[0, name]) for name in names]
    rows = [(line[0][0], [text for _, text in line]) for line in zip(*columns, strict=True)]
    return Grid(title, names, [Group("", rows)])


def _overview(results: Results, title: str, columns: Columns) -> Grid:
    """A line for each run of a sweep."""
    groups = [
        Group(cell.label, [_run_row(name, results.summaries[place, name], columns) for name in runs])
        for place, (cell, runs) in enumerate(zip(results.plan.cells, results.by_cell, strict=True))
    ]
    return Grid(title, list(columns), groups)


def _run_row(variant: str, summary: Summary, columns: Columns) -> Row:
    label = variant if summary.outcome == "completed" else f"{variant}: {summary.outcome}"
    return f"  {label}", [text(summary) for text in columns.values()]


def _gauge(gauge: Gauge) -> str:
    return f"{gauge.mean:.2f} / {number(gauge.max)}" if gauge.mean == gauge.mean else DASH


def _milliseconds(spread: Spread) -> str:
    return " · ".join(number(1e3 * value) for value in (spread.p50, spread.p90, spread.p99)) if spread.count else DASH


def _print_findings(console: Console, verdict: Verdict) -> None:
    """Each statement, and under it what was measured in each cell that it speaks of."""
    for (kind, text, because), findings in groupby(verdict.findings, lambda each: (each.kind, each.text, each.because)):
        print_hanging(console, f"{kind:<8}", text, "bold")
        for finding in findings:
            cell = f"{finding.cell}: " if finding.cell else ""
            style = STYLES.get(finding.outcome, "yellow")
            print_hanging(console, f"  {finding.outcome}  ", cell + finding.measured, style)
        if because:
            print_hanging(console, " " * 8, because, body="dim")


def print_verdict(verdict: Verdict, console: Console | None = None) -> None:
    """The verdict, and the reasons where it is not CONFIRMED."""
    console = console or stdout()
    outcome = verdict.outcome or ("none, for part of it was not run" if verdict.reasons else "")
    if outcome:
        print_hanging(console, "verdict: ", outcome, body=STYLES.get(outcome, "yellow"))
    if verdict.outcome != CONFIRMED:
        for reason in verdict.reasons:
            print_hanging(console, "  ", reason)
