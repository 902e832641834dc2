"""What a person sees of a fit."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from .console import stdout
from .experiment.fit import Fitted
from .models.quantity import show


def print_fit(fitted: Fitted, path: Path) -> None:
    """The numbers, how well they fit each measurement, and where they were written."""
    console = stdout()
    for name, value in zip(fitted.fit.names, fitted.fit.coefficients, strict=True):
        loose = "  (the measurements do not determine it)" if name in fitted.fit.undetermined else ""
        console.print(f"{name}: {show(value, 's')}{loose}")
    if fitted.predictions:
        console.print(_rows(fitted))
    mean, most = 100 * fitted.fit.mean_error, 100 * fitted.fit.max_error
    console.print(f"relative error of what was fitted: mean {mean:.2f} %, largest {most:.2f} %")
    console.print(f"written to {escape(str(path))}", soft_wrap=True)


def _rows(fitted: Fitted) -> Table:
    table = Table()
    for name in ("measurement", "measured tok/s", "predicted tok/s", "error", "used"):
        table.add_column(name, justify="left" if name == "measurement" else "right")
    for row in fitted.predictions:
        rates = (f"{row.tokens / seconds:,.2f}" for seconds in (row.seconds, row.predicted))
        table.add_row(escape(row.label), *rates, f"{100 * row.error:+.2f} %", "fitted" if row.fitted else "left out")
    return table
