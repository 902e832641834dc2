"""The report of an experiment: one page that opens offline."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from .atomic import write_file
from .report_tables import cell_table, notes_list, overview_table, statements_table, verdict_badge
from .run import Run
from .run_view import RunView, points_for

Views = Mapping[str, Run | RunView]
Cells = Mapping[str, Views]


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
    views = _views(cells)
    write_file(path, _page(title, views, verdict_badge(verdict), statements_table(statements) + notes_list(notes)))


def _views(cells: Cells) -> dict[str, dict[str, RunView]]:
    points = points_for(sum(len(runs) for runs in cells.values()))
    return {
        label: {name: run if isinstance(run, RunView) else RunView.of(run, points) for name, run in runs.items()}
        for label, runs in cells.items()
    }


def _page(title: str, cells: Mapping[str, Mapping[str, RunView]], badge: str, findings: str) -> str:
    from html import escape

    from plotly.offline import get_plotlyjs

    return Template(_asset("report.html")).substitute(
        title=escape(title), badge=badge, findings=findings, overview=overview_table(cells),
        tables="\n".join(cell_table(number, label, views) for number, (label, views) in enumerate(cells.items())),
        data=_json({"cells": list(_drawn(cells))}),
        style=_asset("report.css"), script=_asset("report.js"), plotly=get_plotlyjs(),
    )


def _drawn(cells: Mapping[str, Mapping[str, RunView]]) -> Iterator[dict[str, Any]]:
    for label, views in cells.items():
        runs = [{"name": name, "panels": v.panels, "latencies": v.latencies} for name, v in views.items()]
        yield {"label": label, "runs": runs}


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
