"""The latency file that a fit leaves behind."""

from pathlib import Path
from typing import Any

import yaml

from ..models.quantity import show
from ..traces.atomic import write_file
from .fit import AffineFit
from .latency.config import RECORD

MOST_ROWS = 100
"""A fit of more rows than this (single steps) is recorded without the rows."""


def write_fit(fit: AffineFit, path: Path, source: str) -> None:
    """Write the fitted model as YAML, with what it was fitted on and how well it fits.

    The file is `latency: path` of an experiment. Written whole or not at all; raises OSError
    that names it where that cannot be done.
    """
    write_file(path, fit_text(fit, source))


def fit_text(fit: AffineFit, source: str) -> str:
    """The file: comments, the model in plain seconds, the record of the fit."""
    model = dict(zip(fit.names, fit.coefficients, strict=True))
    lines = [
        "# An affine latency model, fitted by arcsim: the least sum of squared relative errors, no number negative.",
        "# Seconds. A step with any prefill row pays prefill_step, else decode_step; a row is a sequence of a forward.",
        *(f"# {name}: {show(value, 's')}" for name, value in model.items()),
    ]
    body = {"kind": "affine", **model, RECORD: _record(fit, source)}
    return "\n".join(lines) + "\n" + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)


def _record(fit: AffineFit, source: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": source, "measurements": len(fit.seconds), "mean_relative_error": _short(fit.mean_error),
        "max_relative_error": _short(fit.max_error),
    }
    if fit.undetermined:
        record["undetermined"] = list(fit.undetermined)
    if len(fit.seconds) <= MOST_ROWS:
        labels = fit.labels or tuple(str(row) for row in range(len(fit.seconds)))
        columns = zip(labels, fit.seconds, fit.predicted, fit.errors, strict=True)
        record["rows"] = [
            {"label": label, "seconds": _short(took), "predicted": _short(said),
             "relative_error": round(float(error), 6)}
            for label, took, said, error in columns
        ]
    return record


def _short(value: float) -> float:
    return float(f"{value:.4g}")
