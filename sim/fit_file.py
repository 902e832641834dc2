"""The latency file that a fit leaves behind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..models.quantity import show
from ..traces.atomic import write_file
from .cross_validation import RegionError
from .fit import AffineFit
from .latency.config import RECORD
from .table_fit import TableFit

MOST_ROWS = 100
"""A fit of more rows than this (single steps) is recorded without the rows."""


def write_fit(
    fit: AffineFit | TableFit, path: Path, source: str, regions: Sequence[RegionError] = (),
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the fitted model as YAML, with what it was fitted on and how well it fits.

    The file is `latency: path` of an experiment. `regions`: cross-validated errors; `more`: further facts of the
    record, such as the machine. Written whole or not at all; raises OSError that names it where that cannot be done.
    """
    write_file(path, fit_text(fit, source, regions, more))


def fit_text(
    fit: AffineFit | TableFit, source: str, regions: Sequence[RegionError] = (), more: Mapping[str, Any] | None = None,
) -> str:
    """The file: comments, the model in plain seconds, the record of the fit."""
    lines = _affine_comment(fit) if isinstance(fit, AffineFit) else TABLE_COMMENT
    record = _record(fit, source) | ({"cross_validated": region_rows(regions)} if regions else {}) | dict(more or {})
    body = fit.settings() | {RECORD: record}
    return "\n".join(lines) + "\n" + yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


TABLE_COMMENT = (
    "# A table latency model, fitted by arcsim: the least sum of squared relative errors, outliers weighed down.",
    "# Seconds. A step of decode rows only: by its rows. One with any prefill: by all its tokens. Linear in between.",
)


def _affine_comment(fit: AffineFit) -> Sequence[str]:
    return (
        "# An affine latency model, fitted by arcsim: the least sum of squared relative errors, no number negative.",
        "# Seconds. A step with any prefill row pays prefill_step, else decode_step; a row is a sequence of a forward.",
        *(f"# {name}: {show(value, 's')}" for name, value in zip(fit.names, fit.coefficients, strict=True)),
    )


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line: a table is read across."""


def _flow(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    plain = all(isinstance(value, int | float) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=plain)


_Dumper.add_representer(list, _flow)


def _record(fit: AffineFit | TableFit, source: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": source, "measurements": len(fit.seconds), "mean_relative_error": _short(fit.mean_error),
        "max_relative_error": _short(fit.max_error),
    }
    if isinstance(fit, TableFit):
        return record | ({"notes": list(fit.notes)} if fit.notes else {})
    if fit.undetermined:
        record["undetermined"] = list(fit.undetermined)
    if len(fit.seconds) <= MOST_ROWS:
        record["rows"] = _rows(fit)
    return record


def _rows(fit: AffineFit) -> list[dict[str, Any]]:
    labels = fit.labels or tuple(str(row) for row in range(len(fit.seconds)))
    columns = zip(labels, fit.seconds, fit.predicted, fit.errors, strict=True)
    return [
        {"label": label, "seconds": _short(took), "predicted": _short(said), "relative_error": round(float(error), 6)}
        for label, took, said, error in columns
    ]


def region_rows(regions: Sequence[RegionError]) -> dict[str, Any]:
    """Of each kind of step: how many, and relative errors."""
    return {
        each.name: {"steps": each.steps, "median": _short(each.median), "p90": _short(each.p90),
                    "bias": _short(each.bias)} for each in regions
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
