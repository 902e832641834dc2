"""The affine latency model from measured steps or from measured totals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .latency.affine import Affine
from .residuals import Residuals

Floats = NDArray[np.float64]
FEATURES = ("decode_step", "prefill_step", "padded_prefill_token", "row")
CONTEXT = "context_token"
NEEDED = ("prefill_seqs", "forward_width", "padded_tokens", "t_start", "t_end")


class FitError(ValueError):
    """Measurements that cannot be fitted."""


@dataclass(frozen=True, slots=True)
class AffineFit(Residuals):
    """Coefficients in seconds, and what they give for each fitted row.

    `seconds` as measured, `predicted` as the model has it, both of shape [n]; `labels` name the rows.
    `undetermined`: coefficients that the rows do not tell apart from others, or say nothing about.
    """

    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    seconds: Floats
    predicted: Floats
    labels: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()

    def model(self) -> Affine:
        return Affine.model_validate(dict(zip(self.names, self.coefficients, strict=True)))

    def settings(self) -> dict[str, Any]:
        """The model as a configuration has it."""
        return {"kind": "affine", **dict(zip(self.names, self.coefficients, strict=True))}

    def predict(self, features: Floats) -> Floats:
        """Seconds of rows that were not fitted, features of shape [m, p]."""
        return np.asarray(features @ np.array(self.coefficients), dtype=np.float64)


def features_of_steps(columns: Mapping[str, Any], *, context: bool = False) -> Floats:
    """What the affine model counts in each step of a step table: shape [steps, 4], with `context` [steps, 5].

    In the order of FEATURES: 1 if it is a decode step, 1 if it is a prefill step (any prefill row makes it one),
    padded prefill tokens, rows of all forwards; then KV entries read. An empty step is all zeros.
    Raises FitError where a column is missing.
    """
    rows = _column(columns, "forward_width")
    prefill = _column(columns, "prefill_seqs") > 0
    parts = [(rows > 0) & ~prefill, prefill, _column(columns, "padded_tokens"), rows]
    if context:
        parts.append(_column(columns, "context_tokens"))
    return np.column_stack(parts).astype(np.float64)


def fit_steps(tables: Iterable[Mapping[str, Any]], *, context: bool = True) -> AffineFit:
    """Fit single steps of one or more step tables, each taking `t_end - t_start`; empty steps are left out."""
    features, seconds = [], []
    for columns in tables:
        found = features_of_steps(columns, context=context)
        took = _column(columns, "t_end") - _column(columns, "t_start")
        ran = found.any(axis=1)
        features.append(found[ran])
        seconds.append(took[ran])
    if not sum(map(len, seconds)):
        raise FitError("no step ran anything: there is nothing to fit")
    names = (*FEATURES, CONTEXT) if context else FEATURES
    return fit_affine(np.concatenate(features), np.concatenate(seconds), names)


def fit_affine(
    features: Floats, seconds: Floats, names: Sequence[str] = FEATURES, labels: Sequence[str] = (),
) -> AffineFit:
    """Coefficients from 0 up that minimise the sum of squared RELATIVE errors of `features @ coefficients`.

    `features` of shape [n, p] are counts of single steps, or sums over a run; `seconds` of shape [n]. Absolute errors
    would let the longest rows decide alone. Raises FitError where rows are too few, negative or not finite.
    """
    _check(features, seconds, names)
    weighted = features / seconds[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0.0] = 1.0
    coefficients = non_negative(weighted / scale, np.ones(len(seconds))) / scale
    return AffineFit(
        names=tuple(names), coefficients=tuple(float(value) for value in coefficients), seconds=seconds,
        predicted=np.asarray(features @ coefficients, dtype=np.float64), labels=tuple(labels),
        undetermined=_undetermined(weighted / scale, names),
    )


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """Non-negative least squares, on the triangle of a QR decomposition: the same minimum whatever the rows."""
    from scipy.optimize import nnls  # slow to import

    triangle = np.asarray(np.linalg.qr(np.column_stack([matrix, target]), mode="r"))
    return np.asarray(nnls(triangle[:, :-1], triangle[:, -1])[0], dtype=np.float64)


def _undetermined(matrix: Floats, names: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns that a combination of the others replaces (columns of length 1 or 0; up to 1e-6)."""
    _, values, directions = np.linalg.svd(np.linalg.qr(matrix, mode="r"))
    null = np.abs(directions[values <= 1e-6 * values[0]])
    return tuple(name for name, part in zip(names, null.T, strict=True) if (part > 1e-3).any())


def _check(features: Floats, seconds: Floats, names: Sequence[str]) -> None:
    count, width = features.shape
    if width != len(names) or seconds.shape != (count,):
        raise FitError(f"features {features.shape} do not go with {len(names)} names and seconds {seconds.shape}")
    if count < width:
        raise FitError(f"{count} measurements cannot fix {width} numbers ({', '.join(names)}): measure more cells")
    bad = ~(np.isfinite(seconds) & (seconds > 0) & np.isfinite(features).all(axis=1) & (features >= 0).all(axis=1))
    if bad.any():
        row = int(np.argmax(bad))
        raise FitError(f"measurement {row}: seconds must be above 0 and counts from 0 up, found {seconds[row]} s and "
                       f"{features[row].tolist()}")


def _column(columns: Mapping[str, Any], name: str) -> Floats:
    if name not in columns:
        raise FitError(f"the step table has no column '{name}'; a fit needs {', '.join(NEEDED)}")
    return np.asarray(columns[name], dtype=np.float64)
