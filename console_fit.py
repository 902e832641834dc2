"""What a person sees of a fit."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from .console import stdout
from .console_grid import Grid, Group, Row, print_grid
from .experiment.fit import Fitted, Prediction
from .models.quantity import show
from .sim.cross_validation import RegionError
from .sim.fit import AffineFit
from .sim.table_fit import TableFit


def print_fit(fitted: Fitted, path: Path) -> None:
    """The numbers, how well they fit each measurement, and where they were written."""
    console = stdout()
    _print_model(console, fitted.fit)
    console.print()
    if fitted.predictions:
        names = ("measured tok/s", "predicted tok/s", "error", "used")
        print_grid(console, Grid("what it gives", names, [Group("", [_row(each) for each in fitted.predictions])]))
        console.print()
    if fitted.regions:
        print_regions(console, "on steps left out of the fit (cross-validated)", fitted.regions)
        console.print()
    mean, most = 100 * fitted.fit.mean_error, 100 * fitted.fit.max_error
    console.print(f"relative error of the seconds that were fitted: mean {mean:.2f} %, largest {most:.2f} %")
    console.print(f"written to {escape(str(path))}", soft_wrap=True)


def print_regions(console: Console, title: str, regions: Sequence[RegionError]) -> None:
    """Errors by kind of step."""
    rows = [
        (each.name, (f"{each.steps:,}", f"{100 * each.median:.1f} %", f"{100 * each.p90:.1f} %",
                     f"{100 * each.bias:+.1f} %")) for each in regions
    ]
    print_grid(console, Grid(title, ("steps", "median error", "p90 error", "error of the sum"), [Group("", rows)]))


def _print_model(console: Console, fit: AffineFit | TableFit) -> None:
    if isinstance(fit, TableFit):
        for line in _table_lines(fit):
            console.print(escape(line), soft_wrap=True)
        return
    for name, value in zip(fit.names, fit.coefficients, strict=True):
        loose = "  (the measurements do not determine it)" if name in fit.undetermined else ""
        console.print(f"{name}: {show(value, 's')}{loose}")


def _table_lines(fit: TableFit) -> Iterator[str]:
    decode, prefill = fit.config.decode, fit.config.prefill
    yield f"decode rows: {_points(decode.rows, decode.seconds)}"
    yield f"  each KV entry read: {show(decode.context_token, 's')}"
    yield f"tokens of a step with prefill: {_points(prefill.tokens, prefill.seconds)}"
    yield (f"  each row: {show(prefill.row, 's')}, KV entry read: {show(prefill.context_token, 's')}, pair attended: "
           f"{show(prefill.attended_pair, 's')}")
    yield from (f"note: {note}" for note in fit.notes)


def _points(knots: Sequence[int], seconds: Sequence[float]) -> str:
    return ", ".join(f"{knot}: {1e3 * value:.3g} ms" for knot, value in zip(knots, seconds, strict=True))


def _row(row: Prediction) -> Row:
    rates = (f"{row.tokens / seconds:,.2f}" for seconds in (row.seconds, row.predicted))
    return row.label, (*rates, f"{100 * row.error:+.2f} %", "fitted" if row.fitted else "left out")
