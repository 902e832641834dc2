"""What a person sees of an experiment: progress, tables, the verdict."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .experiment.jobs import Job, jobs_of, run_jobs
from .experiment.plan import Plan
from .experiment.results import REPORT, Results, check_target
from .experiment.verdict import CONFIRMED, Finding, Verdict
from .traces.interval import LogLine, stamped
from .traces.metrics import Summary
from .traces.summary_text import summary_rows

COLOURS = {"CONFIRMED": "bold green", "REFUTED": "bold red", "INVALID": "bold yellow"}
MARKS = {"holds": "[green]holds[/]", "fails": "[red]fails[/]"}
MANY_CELLS = 2
"""From this many cells on, one line a run instead of a table a cell."""


def stdout() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 160)
    return console


def stderr() -> Console:
    return Console(stderr=True)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def run_experiment(plan: Plan, folder: Path, *, workers: int | None, audit: bool, quiet: bool) -> Results:
    """Run everything with a progress bar, and save it. Raises what the runs raise, `UserError` or `OSError`."""
    check_target(folder)
    jobs = jobs_of(plan)
    with _bars(quiet) as bars:
        watch = _Watch(bars, len(jobs))
        runs = run_jobs(jobs, workers=workers, audit=audit, progress=watch.requests, done=watch.done)
    results = Results(plan, runs)
    results.save(folder)
    return results


def _bars(quiet: bool) -> "AbstractContextManager[Progress | None]":
    if quiet:
        return nullcontext()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[clock]}"))
    return Progress(*columns, console=stderr(), transient=True)


class _Watch:
    """Moves the bars: runs done, and requests ended in the run that is being made."""

    def __init__(self, bars: Progress | None, runs: int) -> None:
        self._bars = bars
        if bars is not None:
            self._runs = bars.add_task("runs", total=runs, clock="")
            self._requests = bars.add_task("requests", total=None, clock="")

    def requests(self, ended: int, total: int, now: float) -> None:
        if self._bars is not None:
            self._bars.update(self._requests, completed=ended, total=total, clock=f"{now:,.1f} s simulated")

    def done(self, job: Job) -> None:
        if self._bars is not None:
            self._bars.update(self._runs, advance=1, clock=job.origin)


def print_results(results: Results, folder: Path) -> None:
    """Tables, what was noticed, the verdict, and where it all lies."""
    console = stdout()
    if len(results.plan.cells) < MANY_CELLS:
        _print_cell(console, results)
    else:
        console.print(_overview(results))
    for note in results.notes:
        console.print(f"[dim]note:[/] {escape(note)}")
    for run in results.runs.values():
        if run.meta["report"]:
            console.print(f"[bold yellow]{escape(run.meta['origin'])}[/]: {escape(run.meta['report'])}")
    print_verdict(results.verdict, console)
    console.print(f"report: {escape(str(folder / REPORT))}", soft_wrap=True)


def _print_cell(console: Console, results: Results) -> None:
    summaries = {name: results.summaries[0, name] for name in results.by_cell[0]}
    table = Table(title=escape(results.plan.shape.name), title_justify="left")
    table.add_column("")
    for name in summaries:
        table.add_column(escape(name), justify="right")
    for rows in zip(*(summary_rows(summary) for summary in summaries.values()), strict=True):
        table.add_row(rows[0][0], *(text for _, text in rows))
    console.print(table)


OVERVIEW = ("steps", "running", "forward width", "waiting", "tok/s", "TTFT p50·p90·p99 ms", "TPOT p50·p90·p99 ms",
            "E2E p50·p90·p99 ms", "preempt.", "recomputed", "KV peak")


def _overview(results: Results) -> Table:
    """A line for each run of a sweep; gauges as mean/max over steps."""
    table = Table(title=f"{escape(results.plan.shape.name)} (gauges: mean/max over steps)", title_justify="left")
    table.add_column("cell", overflow="fold")
    table.add_column("variant")
    for name in OVERVIEW:
        table.add_column(name, justify="right")
    for place, (cell, runs) in enumerate(zip(results.plan.cells, results.by_cell, strict=True)):
        for number, name in enumerate(runs):
            label = escape(cell.label) if number == 0 else ""
            table.add_row(label, escape(name), *_cells(results.summaries[place, name]))
        table.add_section()
    return table


def _cells(summary: Summary) -> Iterable[str]:
    yield f"{summary.steps:,}"
    for gauge in (summary.running, summary.forward_width, summary.waiting):
        yield f"{gauge.mean:.2f}/{gauge.max:g}"
    yield f"{summary.throughput:,.1f}"
    for spread in (summary.ttft, summary.tpot, summary.e2e):
        yield "·".join(f"{1e3 * value:.4g}" for value in (spread.p50, spread.p90, spread.p99))
    yield from (f"{summary.preemptions:,}", f"{summary.recomputed_tokens:,}", f"{summary.kv_peak:,}")


def print_verdict(verdict: Verdict, console: Console | None = None) -> None:
    """The statements with what was measured, then the verdict and its reasons."""
    console = console or stdout()
    if verdict.findings:
        console.print(_findings(verdict.findings))
    for finding in verdict.findings:
        if finding.kind == "note" and finding.because:
            console.print(f"[dim]note {finding.outcome}:[/] {escape(finding.because)}")
    if verdict.outcome is not None:
        console.print(f"verdict: [{COLOURS[verdict.outcome]}]{verdict.outcome}[/]")
    if verdict.outcome != CONFIRMED:
        for reason in verdict.reasons:
            console.print(f"  {escape(reason)}")


def _findings(findings: Sequence[Finding]) -> Table:
    table = Table()
    for name in ("", "statement", "cell", "measured", "outcome"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        mark = MARKS.get(finding.outcome, f"[yellow]{finding.outcome}[/]")
        table.add_row(finding.kind, escape(finding.text), escape(finding.cell), escape(finding.measured), mark)
    return table


def print_log(lines: Sequence[LogLine], style: str, interval: float) -> None:
    """The engine's lines; the forward width, which no engine prints, stands behind each."""
    for line in lines:
        print(f"{stamped(line, style)}    [forward width {line.forward_width}]")
    if not lines:
        print(f"no line: the run has no tick of {interval:g} s with tokens before it (try --interval)", file=sys.stderr)


def rows_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A plain table of dictionaries with the same keys."""
    table = Table(box=None, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    return table
