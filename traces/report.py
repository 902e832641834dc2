"""The report of an experiment: one page that opens offline."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from .atomic import write_file
from .report_tables import cell_tables, notes_list, overview_table, section, statements_table, verdict_badge
from .run import Run
from .run_view import POINTS, RunView, points_for, requests_for
from .worst import worst_ids

Views = Mapping[str, Run | RunView]
Cells = Mapping[str, Views]
FEW_RUNS = 4
"""Of as many at most the worst requests are told in every run."""
SCRIPTS = ("report_theme.js", "report_time.js", "report_latency.js", "report_requests.js", "report.js")


def write_report(
    path: Path | str, title: str, runs: Views, *, verdict: str = "", statements: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the page of one workload. `runs`: by variant. See `write_sweep_report` for the rest."""
    write_sweep_report(path, title, {"": runs}, verdict=verdict, statements=statements, notes=notes)


def write_sweep_report(
    path: Path | str, title: str, cells: Cells, *, verdict: str = "", statements: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write one self-contained HTML page: verdict, numbers, gauges over time, latency distributions.

    `cells`: the runs by variant, by the label of a cell of a sweep; the page shows one cell at a time. Give a `RunView`
    (made with `points_for(number of runs)`) instead of a `Run` where the runs do not all fit in memory.
    `statements`: rows with `kind`, `text`, `outcome` and `measured`. `notes`: lines below them. Raises OSError, with
    one message that names `path`, where it cannot be written.
    """
    views = views_of(cells)
    findings = statements_table(statements) + notes_list(notes)
    write_file(path, page(title, views, verdict_badge(verdict), findings, section("Numbers", cell_tables(views))))


def views_of(cells: Cells, moved: Mapping[str, float] | None = None) -> dict[str, dict[str, RunView]]:
    """What is drawn of each run, thinned so that all of them fit on a page. `moved`: seconds that are added to the
    times of the runs of that name."""
    points = points_for(sum(len(runs) for runs in cells.values()))
    return {label: _cell(runs, points, moved or {}) for label, runs in cells.items()}


def _cell(views: Views, points: int, moved: Mapping[str, float]) -> dict[str, RunView]:
    """What one of a few runs served badly is told of the others, too."""
    runs = [run for run in views.values() if isinstance(run, Run)]
    few = len(runs) <= FEW_RUNS and points >= POINTS
    also = set().union(*(worst_ids(run, requests_for(points)) for run in runs)) if few and len(runs) > 1 else set()
    return {
        name: run if isinstance(run, RunView) else RunView.of(run, points, also, moved.get(name, 0.0))
        for name, run in views.items()
    }


def page(title: str, cells: Mapping[str, Mapping[str, RunView]], badge: str, findings: str, numbers: str) -> str:
    """The page as HTML; `badge`, `findings` and `numbers` are HTML already and stand at its top."""
    from html import escape

    from plotly.offline import get_plotlyjs

    return Template(_asset("report.html")).substitute(
        title=escape(title), badge=badge, findings=findings, overview=overview_table(cells),
        numbers=numbers, data=_json({"cells": list(_drawn(cells)), "first": most_apart(cells)}),
        style=_asset("report.css"), script="\n".join(map(_asset, SCRIPTS)), plotly=get_plotlyjs(),
    )


def most_apart(cells: Mapping[str, Mapping[str, RunView]]) -> int:
    """The place of the cell whose variants' makespans differ most by ratio, which a page shows first."""
    spans = [[view.summary.makespan for view in views.values()] for views in cells.values()]
    ratios = [max(each) / min(each) if each and min(each) > 0 else 1.0 for each in spans]
    return max(range(len(ratios)), key=ratios.__getitem__, default=0)


def _drawn(cells: Mapping[str, Mapping[str, RunView]]) -> Iterator[dict[str, Any]]:
    for label, views in cells.items():
        yield {"label": label, "runs": [{"name": name, **_run(view)} for name, view in views.items()]}


def _run(view: RunView) -> dict[str, Any]:
    return {
        "panels": view.panels, "latencies": view.latencies, "tokens": view.tokens, "marks": view.marks,
        "requests": view.requests, "kv_total": view.summary.kv_total,
    }


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
