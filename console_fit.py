"""What a person sees of a fit."""

from pathlib import Path

from rich.markup import escape

from .console import stdout
from .console_grid import Grid, Group, Row, print_grid
from .experiment.fit import Fitted, Prediction
from .models.quantity import show


def print_fit(fitted: Fitted, path: Path) -> None:
    """The numbers, how well they fit each measurement, and where they were written."""
    console = stdout()
    for name, value in zip(fitted.fit.names, fitted.fit.coefficients, strict=True):
        loose = "  (the measurements do not determine it)" if name in fitted.fit.undetermined else ""
        console.print(f"{name}: {show(value, 's')}{loose}")
    console.print()
    if fitted.predictions:
        names = ("measured tok/s", "predicted tok/s", "error", "used")
        print_grid(console, Grid("what it gives", names, [Group("", [_row(each) for each in fitted.predictions])]))
        console.print()
    mean, most = 100 * fitted.fit.mean_error, 100 * fitted.fit.max_error
    console.print(f"relative error of the seconds that were fitted: mean {mean:.2f} %, largest {most:.2f} %")
    console.print(f"written to {escape(str(path))}", soft_wrap=True)


def _row(row: Prediction) -> Row:
    rates = (f"{row.tokens / seconds:,.2f}" for seconds in (row.seconds, row.predicted))
    return row.label, (*rates, f"{100 * row.error:+.2f} %", "fitted" if row.fitted else "left out")
